//! The live tail.
