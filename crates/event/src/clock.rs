//! The clock of the tail: monotonic nanoseconds, anchored to UTC once per recording.
