//! Analyses as their users meet them: known answers, and agreement with naive oracles.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agreement;
mod churn;
mod device_ledger;
mod excluded;
mod forms;
mod fragmentation;
mod golden;
mod growth;
mod holders;
mod learning;
mod oom;
mod origins;
mod overlay;
mod partial;
mod parts;
mod random;
mod ranks;
mod resume;
mod round_trip;
mod run;
mod snapshots;
mod timeline;
mod traced;
mod whole;
