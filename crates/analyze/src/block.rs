//! Blocks, groups of blocks and kinds as results show them: ids resolved to text.

use std::ops::Deref;
use std::sync::Arc;

use floodmark_event::Kind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The frames of a stack as text, innermost first. Blocks of one stack share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackText(Arc<[String]>);

impl Default for StackText {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl From<Vec<String>> for StackText {
    fn from(frames: Vec<String>) -> Self {
        Self(frames.into())
    }
}

impl Deref for StackText {
    type Target = [String];
    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl Serialize for StackText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

impl<'de> Deserialize<'de> for StackText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(Self::from)
    }
}

/// One block with all that is known of its allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockInfo {
    /// Address; `"0x…"` in JSON.
    #[serde(with = "crate::json::hex")]
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// When it was allocated.
    pub time_ns: i64,
    /// Thread that allocated it.
    pub thread: u64,
    /// Stream on which it was allocated; `"0x…"` in JSON.
    #[serde(with = "crate::json::hex")]
    pub stream: u64,
    /// Device, or none.
    pub device: Option<i32>,
    /// Sort of memory, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Id of the process in the trace.
    pub process: u32,
    /// Name of the variable or block, where the source gives one.
    pub name: Option<String>,
    /// Resource that served it.
    pub resource: Option<String>,
    /// Innermost scope open on the thread; 0 for none.
    pub scope: u64,
    /// Place in the program that allocated it.
    pub site: String,
    /// Call stack, innermost frame first.
    pub stack: StackText,
}

/// By what blocks are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Innermost frame of the user's own code.
    #[default]
    Site,
    /// Whole call stack.
    Stack,
    /// Stream of the allocation.
    Stream,
    /// Thread of the allocation.
    Thread,
    /// Size in bytes.
    Size,
    /// Device.
    Device,
    /// Process.
    Process,
    /// Kind of memory.
    Kind,
    /// Name of the variable or block.
    Name,
    /// Resource that served it.
    Resource,
    /// Scope that was open.
    Scope,
    /// Library that asked for the memory.
    Module,
}

impl GroupBy {
    /// All ways to group.
    pub const ALL: [Self; 12] = [
        Self::Site,
        Self::Stack,
        Self::Stream,
        Self::Thread,
        Self::Size,
        Self::Device,
        Self::Process,
        Self::Kind,
        Self::Name,
        Self::Resource,
        Self::Scope,
        Self::Module,
    ];

    /// The word for it on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Stack => "stack",
            Self::Stream => "stream",
            Self::Thread => "thread",
            Self::Size => "size",
            Self::Device => "device",
            Self::Process => "process",
            Self::Kind => "kind",
            Self::Name => "name",
            Self::Resource => "resource",
            Self::Scope => "scope",
            Self::Module => "module",
        }
    }

    /// The way with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// Blocks that have something in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common, as text.
    pub key: String,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their share of all bytes reported, from 0 to 1.
    pub share: f64,
    /// The stack they share, when grouped by stack.
    pub stack: StackText,
}

/// What there is of a kind that the figures beside it do not cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindSummary {
    /// The kind, by name in JSON.
    #[serde(with = "crate::json::kind")]
    pub kind: Kind,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Allocations that failed.
    pub failures: u64,
    /// Bytes of all allocations.
    pub total_bytes: u64,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// First instant of the highest live bytes.
    pub peak_time_ns: Option<i64>,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Live blocks at the end.
    pub live_blocks: u64,
}
