//! Blocks as rows: each allocation with its end, as it ends; those that are live at the end come last.
//!
//! Memory grows with live blocks, as everywhere.

use std::collections::VecDeque;
use std::sync::Arc;

use floodmark_analyze::fold::End;
use floodmark_analyze::{Block, Ending, Fold, Level, Pass, SiteRules, Space};
use floodmark_event::{EventBatch, Filter, NO_DEVICE, ProcessId};
use floodmark_store::{Scan, ScanProps, Source as _, Trace};
use rusqlite::types::Value;

use crate::error::Result;

/// Columns of the table.
pub(super) const BLOCK_COLUMNS: [(&str, &str); 18] = [
    ("process", "INTEGER"),
    ("device", "INTEGER"),
    ("kind", "TEXT"),
    ("resource", "TEXT"),
    ("address", "INTEGER"),
    ("bytes", "INTEGER"),
    ("time_ns", "INTEGER"),
    ("thread", "INTEGER"),
    ("stream", "INTEGER"),
    ("scope", "INTEGER"),
    ("name", "TEXT"),
    ("freed_ns", "INTEGER"),
    ("freed_by", "INTEGER"),
    ("lifetime_ns", "INTEGER"),
    ("ended", "TEXT"),
    ("live", "INTEGER"),
    ("site", "TEXT"),
    ("stack", "TEXT"),
];

/// A block, and how it ended.
#[derive(Clone, Copy)]
struct EndedBlock {
    block: Block,
    space: Space,
    end: BlockEnd,
}

#[derive(Clone, Copy)]
enum BlockEnd {
    Freed { time_ns: i64, thread: u64 },
    Replaced { time_ns: i64 },
    Live,
}

/// Collects blocks as they end.
#[derive(Default)]
struct EndedFold {
    spaces: Vec<Space>,
    ended: VecDeque<EndedBlock>,
}

impl EndedFold {
    fn push(&mut self, block: &Block, end: BlockEnd) {
        let space = self.spaces[block.space as usize];
        self.ended.push_back(EndedBlock { block: *block, space, end });
    }
}

impl Fold for EndedFold {
    type Output = ();

    fn space(&mut self, index: u32, space: Space) {
        self.spaces.resize(self.spaces.len().max(index as usize + 1), Space::default());
        self.spaces[index as usize] = space;
    }
    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        self.push(block, BlockEnd::Freed { time_ns: ending.time_ns, thread: ending.thread });
    }
    fn replaced(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.push(block, BlockEnd::Replaced { time_ns });
    }
    fn finish(&self, _end: &End<'_>) {}
}

/// Rows of blocks.
pub(super) struct BlockRows {
    scan: Scan,
    pass: Pass<EndedFold>,
    batch: EventBatch,
    current: Option<EndedBlock>,
    has_ended: bool,
}

impl BlockRows {
    pub(super) fn open(trace: &Arc<Trace>, processes: Option<Vec<ProcessId>>) -> Result<Self> {
        let scan = trace.scan(&ScanProps { processes, ..ScanProps::default() })?;
        let pass = Pass::new(&Filter::default(), EndedFold::default());
        let mut rows = Self { scan, pass, batch: EventBatch::new(), current: None, has_ended: false };
        rows.advance()?;
        Ok(rows)
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        loop {
            self.current = self.pass.fold_mut().ended.pop_front();
            if self.current.is_some() || self.has_ended {
                return Ok(());
            }
            if self.scan.next(&mut self.batch)? {
                self.pass.update(&self.batch);
                continue;
            }
            self.has_ended = true;
            let mut live: Vec<Block> = self.pass.live().blocks().copied().collect();
            live.sort_unstable_by_key(|block| block.order);
            for block in live {
                self.pass.fold_mut().push(&block, BlockEnd::Live);
            }
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.current.is_none()
    }

    pub(super) fn column(&self, at: usize) -> Value {
        let Some(EndedBlock { block, space, end }) = self.current else { return Value::Null };
        let number = |number: u64| Value::Integer(number as i64);
        let tables = self.scan.tables();
        let text = |text: &str| if text.is_empty() { Value::Null } else { Value::Text(text.to_owned()) };
        let ended_ns = match end {
            BlockEnd::Freed { time_ns, .. } | BlockEnd::Replaced { time_ns } => Some(time_ns),
            BlockEnd::Live => None,
        };
        match BLOCK_COLUMNS[at].0 {
            "process" => number(u64::from(space.process.0)),
            "device" if space.device == NO_DEVICE => Value::Null,
            "device" => Value::Integer(i64::from(space.device)),
            "kind" => Value::Text(block.kind.name().to_owned()),
            "resource" => text(tables.string(space.resource)),
            "address" => number(block.address),
            "bytes" => number(block.bytes),
            "time_ns" => Value::Integer(block.time_ns),
            "thread" => number(block.thread),
            "stream" => number(block.stream),
            "scope" if block.scope == 0 => Value::Null,
            "scope" => number(block.scope),
            "name" => text(tables.string(block.name)),
            "freed_ns" => match end {
                BlockEnd::Freed { time_ns, .. } => Value::Integer(time_ns),
                _ => Value::Null,
            },
            "freed_by" => match end {
                BlockEnd::Freed { thread, .. } => number(thread),
                _ => Value::Null,
            },
            "lifetime_ns" => ended_ns
                .map_or(Value::Null, |ended_ns| Value::Integer(ended_ns.saturating_sub(block.time_ns))),
            "ended" => match end {
                BlockEnd::Freed { .. } => Value::Text("freed".to_owned()),
                BlockEnd::Replaced { .. } => Value::Text("unseen".to_owned()),
                BlockEnd::Live => Value::Null,
            },
            "live" => Value::Integer(i64::from(matches!(end, BlockEnd::Live))),
            "site" => Value::Text(SiteRules::default().site(block.stack, block.name, tables)),
            _ => text(&tables.stack_text(block.stack).join("\n")),
        }
    }
}
