"""Numba's arrays from our resources."""

PROGRAM = """
    import floodmark
    floodmark.reinitialize(pool_allocator=True, initial_pool_size=2**26)
    floodmark.statistics.enable_statistics()
    import numpy
    from numba import cuda
    {install}

    def load():
        return cuda.to_device(numpy.arange(1 << 18, dtype="float64"))

    with floodmark.record("run.flood"):
        array = load()
        assert floodmark.statistics.get_statistics().current_bytes == 2 << 20
        assert (array.copy_to_host() == numpy.arange(1 << 18)).all()
        empty = cuda.device_array(0)
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total
    del array, empty
    assert floodmark.statistics.get_statistics().current_bytes == 0
"""


def test_arrays_come_from_the_current_resource(run, ask):
    install = "import floodmark.allocators.numba; floodmark.allocators.numba.install()"
    run(PROGRAM.replace("{install}", install))
    assert "load" in str(ask("watermark"))
    assert ask("stats")["peak_bytes"] >= 2 << 20


def test_the_environment_variable_selects_it(run):
    run(PROGRAM.replace("{install}", "pass"), NUMBA_CUDA_MEMORY_MANAGER="floodmark.allocators.numba")


def test_memory_of_the_driver_can_be_shared_with_other_processes(run):
    run("""
        import floodmark, floodmark.allocators.numba
        floodmark.reinitialize()
        from numba import cuda
        floodmark.allocators.numba.install()
        array = cuda.device_array(1 << 20, dtype="u1")
        handle = cuda.current_context().get_ipc_handle(array.gpu_data)
        assert (handle.size, handle.offset) == (1 << 20, 0)
    """)
