//! Resources from outside.
mod adaptors;
mod aligned;
mod blocks;
mod callback;
mod csv;
mod current;
mod debug_log;
mod failure;
mod folder;
mod limiting;
mod logging;
mod statistics;
mod statistics_oracle;
mod statistics_scopes;
