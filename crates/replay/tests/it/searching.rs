//! The least memory that is enough.
