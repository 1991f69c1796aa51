"""Beside the real RMM."""


def test_a_resource_of_rmm_is_recorded(run, ask):
    run("""
        import rmm, floodmark, floodmark.allocators.rmm
        rmm.mr.set_current_device_resource(
            rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=2**26))
        early = rmm.DeviceBuffer(size=1000)
        floodmark.allocators.rmm.install()

        def load():
            return rmm.DeviceBuffer(size=3_000_000)

        with floodmark.record("run.flood"):
            buffer = load()
            other = rmm.DeviceBuffer.to_device(b"abc")
            assert other.tobytes() == b"abc"
            del other
            try:
                rmm.DeviceBuffer(size=2**50)
                raise SystemExit("no exception")
            except MemoryError:
                pass
        ours = rmm.mr.get_current_device_resource()
        floodmark.allocators.rmm.uninstall()
        assert rmm.mr.get_current_device_resource() is not ours
        del early, buffer
    """)
    stats = ask("stats")
    assert stats["peak_bytes"] >= 3_000_000 and stats["peak_bytes"] < 3_001_000, stats
    assert "load" in str(ask("watermark"))
    assert "3000000" in str(ask("leaks"))
    assert (stats["failures"], stats["largest_failure_bytes"]) == (1, 2**50), stats


def test_resources_of_ours_serve_users_of_rmm(run):
    run("""
        import rmm, floodmark, floodmark.allocators.rmm as beside
        from floodmark import mr
        pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial_pool_size=2**26, maximum_pool_size=2**26)
        counted = mr.StatisticsResourceAdaptor(pool)
        rmm.mr.set_current_device_resource(beside.to_rmm(counted))
        buffer = rmm.DeviceBuffer.to_device(b"x" * 5000)
        assert counted.allocation_counts.current_bytes == 5000
        assert bytes(buffer.tobytes()) == b"x" * 5000
        try:
            rmm.DeviceBuffer(size=2**30)
            raise SystemExit("no exception")
        except MemoryError as error:
            print(error)
        del buffer
        assert counted.allocation_counts.current_bytes == 0
        # And the other way around: our buffers on memory of RMM, on a stream of RMM.
        from rmm.pylibrmm.stream import Stream
        theirs = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
        mine = beside.RmmMemoryResource(theirs)
        assert mine.rmm_mr is theirs
        stream = Stream()
        held = floodmark.DeviceBuffer(size=4000, stream=stream, mr=mine)
        assert theirs.allocation_counts.current_bytes == 4000
        del held
        assert theirs.allocation_counts.current_bytes == 0
    """)
