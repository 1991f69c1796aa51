//! The C interface from outside: real C and C++ programs record, and their traces hold every value.
mod build;
mod example;
mod header;
mod recorded;
mod rmm;
mod tailing;
