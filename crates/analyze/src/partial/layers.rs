//! Layers of allocators as they travel.

use serde::{Deserialize, Serialize};

use crate::layers::{Layer, WholeBlocks};

/// A [`Layer`] in a form that leaves nothing out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LayerData {
    pub(super) process: u32,
    device: Option<i32>,
    resource: String,
    blocks_resource: String,
    bytes: [u64; 7],
    times_ns: [Option<i64>; 3],
    whole_blocks: Option<WholeBlocks>,
}

impl LayerData {
    pub(super) fn new(layer: &Layer) -> Self {
        Self {
            process: layer.process,
            device: layer.device,
            resource: layer.resource.clone(),
            blocks_resource: layer.blocks_resource.clone(),
            bytes: [
                layer.reserved_peak_bytes,
                layer.live_at_reserved_peak_bytes,
                layer.live_peak_bytes,
                layer.reserved_at_live_peak_bytes,
                layer.slack_peak_bytes,
                layer.reserved_bytes,
                layer.live_bytes,
            ],
            times_ns: [layer.reserved_peak_time_ns, layer.live_peak_time_ns, layer.slack_peak_time_ns],
            whole_blocks: layer.whole_blocks,
        }
    }

    pub(super) fn layer(self) -> Layer {
        let [
            reserved_peak,
            live_at_reserved_peak,
            live_peak,
            reserved_at_live_peak,
            slack_peak,
            reserved,
            live,
        ] = self.bytes;
        let [reserved_peak_time_ns, live_peak_time_ns, slack_peak_time_ns] = self.times_ns;
        Layer {
            process: self.process,
            device: self.device,
            resource: self.resource,
            blocks_resource: self.blocks_resource,
            reserved_peak_bytes: reserved_peak,
            reserved_peak_time_ns,
            live_at_reserved_peak_bytes: live_at_reserved_peak,
            live_peak_bytes: live_peak,
            live_peak_time_ns,
            reserved_at_live_peak_bytes: reserved_at_live_peak,
            slack_peak_bytes: slack_peak,
            slack_peak_time_ns,
            reserved_bytes: reserved,
            live_bytes: live,
            whole_blocks: self.whole_blocks,
        }
    }
}
