"""What cuDF calls ``cudf.utils.performance_tracking``."""

from floodmark.profiling import get_memory_records, print_memory_report

__all__ = ["get_memory_records", "print_memory_report"]
