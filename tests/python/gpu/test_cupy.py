"""CuPy's arrays from our resources, and CuPy's own pool in the recording."""


def test_arrays_come_from_the_current_resource(run, ask):
    run("""
        import floodmark
        floodmark.reinitialize(pool_allocator=True, initial_pool_size=2**26)
        floodmark.statistics.enable_statistics()
        import cupy, floodmark.allocators.cupy
        floodmark.allocators.cupy.install()

        def load():
            return cupy.ones(1 << 20, dtype="float32")

        with floodmark.record("run.flood"):
            array = load()
            assert float(array.sum()) == 1 << 20
            assert floodmark.statistics.get_statistics().current_bytes == 4 << 20
            with cupy.cuda.Stream():
                other = array * 2
            assert float(other[0]) == 2
            del other
        del array
        assert floodmark.statistics.get_statistics().current_bytes == 0
        before = floodmark.statistics.get_statistics().total_count
        floodmark.allocators.cupy.uninstall()
        cupy.ones(10)
        assert floodmark.statistics.get_statistics().total_count == before
        assert cupy.get_default_memory_pool().total_bytes() > 0
    """)
    assert "load" in str(ask("watermark"))
    assert ask("stats")["peak_bytes"] >= 8 << 20


def test_cupys_own_pool_is_recorded_by_the_hook(run, ask):
    run("""
        import cupy, floodmark, floodmark.allocators.cupy

        def load():
            return cupy.ones(1 << 20, dtype="float32")

        load()  # the pool has a block of this size already
        with floodmark.record("run.flood"), floodmark.allocators.cupy.RecordingHook():
            first = load()
            second = load()
            del first
    """)
    stats = ask("stats")
    assert stats["peak_bytes"] == 8 << 20, stats
    leaks = ask("leaks")
    assert "load" in str(leaks) and str(4 << 20) in str(leaks), leaks
