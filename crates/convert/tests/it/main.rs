//! What the crate promises, seen from outside.

mod dialects;
mod exports;
mod following;
mod heap;
mod hostile;
mod logs;
mod nsys;
mod nsys_crowd;
mod nsys_db;
mod nsys_folders;
mod nsys_hostile;
mod nsys_live;
mod nsys_products;
mod opening;
mod places;
mod profiles;
mod properties;
mod sample_hostile;
mod sample_logs;
mod sample_properties;
mod sample_traces;
mod seeds;
mod snapshots;
mod torch;
mod torch_hostile;
mod writing;
