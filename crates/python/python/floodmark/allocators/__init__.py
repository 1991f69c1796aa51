"""Floodmark's memory for other libraries, one module per library: ``torch``, ``cupy``, ``numba`` and ``rmm``.

Each module imports its library, so import the one that is needed:

    import floodmark.allocators.torch
    floodmark.allocators.torch.install()
"""
