"""PyTorch's tensors from our resources."""


def test_every_tensor_is_counted_recorded_and_freed(run, ask):
    run("""
        import gc
        import floodmark, floodmark.allocators.torch
        floodmark.reinitialize(pool_allocator=True, initial_pool_size=2**28)
        floodmark.statistics.enable_statistics()
        floodmark.allocators.torch.install()
        assert floodmark.allocators.torch.is_installed()
        import torch

        def load():
            return torch.ones(1024, 1024, device="cuda")

        with floodmark.record("run.flood"):
            held = load()
            assert held.sum().item() == 2**20
            counts = floodmark.statistics.get_statistics()
            assert counts.current_bytes >= 4 << 20, counts
            # Another thread, which autograd makes and Python does not know.
            weight = torch.randn(256, 256, device="cuda", requires_grad=True)
            (weight @ weight).sum().backward()
            torch.cuda.synchronize()
            del weight
            gc.collect()
        before = floodmark.statistics.get_statistics()
        del held
        # PyTorch keeps workspaces of its libraries.
        left = floodmark.statistics.get_statistics()
        assert left.current_bytes == before.current_bytes - (4 << 20), (before, left)
        assert floodmark._native.pluggable_live()[0] == left.current_bytes
    """)
    answer = ask("watermark")
    assert "load" in str(answer), answer
    assert ask("stats")["peak_bytes"] >= 4 << 20


def test_out_of_memory_is_an_exception_that_programs_understand(run):
    run("""
        import floodmark, floodmark.allocators.torch
        from floodmark import mr
        mr.set_current_device_resource(mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), "64MiB"))
        floodmark.allocators.torch.install()
        import torch
        try:
            torch.empty(2**30, device="cuda")
            raise SystemExit("no exception")
        except RuntimeError as error:
            assert "CUDA out of memory. " in str(error), error
            assert "64.0 MiB" in str(error) or "64.00 MiB" in str(error) or "64 MiB" in str(error), error
        # The program goes on.
        assert torch.ones(10, device="cuda").sum().item() == 10
    """)


def test_a_late_install_says_so(run):
    run("""
        import torch
        torch.ones(10, device="cuda")
        import floodmark.allocators.torch
        try:
            floodmark.allocators.torch.install()
            raise SystemExit("no exception")
        except RuntimeError as error:
            assert "before the first tensor" in str(error), error
    """)


def test_a_part_of_a_program_allocates_from_us(run):
    run("""
        import gc
        import floodmark, floodmark.allocators.torch
        floodmark.statistics.enable_statistics()
        import torch
        outside = torch.ones(1000, device="cuda")
        pool = torch.cuda.MemPool(floodmark.allocators.torch.make_allocator().allocator())
        with torch.cuda.use_mem_pool(pool):
            inside = torch.ones(1 << 20, device="cuda")
        assert floodmark.statistics.get_statistics().current_bytes >= 4 << 20
        assert (inside.sum() + outside.sum()).item() == (1 << 20) + 1000
    """)
