//! Reads a log on several cores: blocks of whole lines are parsed by threads and handed out in their order.
//!
//! A block is parsed as if it were a log of its own, and what carries over from block to block (the day, the last
//! time, line numbers) is put right afterwards. That works where every line of the block is a row. Any other block
//! (a header in the middle, a blank or malformed line, a last line without an end) is read again by the one reader that
//! reads logs in sequence, from the same bytes and with all that it knows of the lines before. So events, errors,
//! line numbers and losses are those of reading in sequence, wherever the blocks end.
//!
//! Threads take turns at reading the input, so the text that a thread parses is in the caches of its own core.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use floodmark_event::units::Date;
use floodmark_event::{EventBatch, Tables};
use floodmark_store::{Error, Losses, Progress, Result, Source};

use super::ReadProps;
use super::columns::Columns;
use super::lines::{LINE_BYTES_MAX, Text};
use super::parser::Parser;
use super::reader::Reader;
use super::usual::WINDOW;

/// How a log is divided among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelProps {
    /// How many threads parse.
    pub threads: usize,
    /// How many bytes a block has at least, but for the last.
    pub block_bytes: usize,
}

impl ParallelProps {
    /// Blocks of somewhat fewer rows than a batch takes, so that each becomes one batch, and so few bytes that they
    /// stay in the second-level cache while they are parsed.
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, block_bytes: 384 << 10 }
    }
}

/// Blocks in a row that were not plain, after which the rest is read in sequence: parsing them twice gains nothing.
const ODD_BLOCKS_MAX: usize = 16;

type Input = Box<dyn Read + Send>;

/// Reads a log on several cores. See [`Reader`] for what it accepts and what the events carry.
pub struct ParallelReader {
    /// Reads what is not plain, and knows what carries over.
    main: Reader<Input>,
    /// Batches of the block that is being handed out.
    batches: VecDeque<EventBatch>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Number of the block that is handed out next.
    next: u64,
    /// Blocks in a row that were not plain.
    odd_blocks: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `main` has lines of its own, and blocks follow.
    Main,
    /// Blocks are handed out.
    Blocks,
    /// `main` reads all the rest, or nothing is left.
    Rest,
}

/// What threads and the reader share.
struct Shared {
    input: Mutex<BlockInput>,
    queue: Mutex<Queue>,
    /// A block was parsed.
    is_ready: Condvar,
    /// A block was taken.
    has_room: Condvar,
    date: Option<Date>,
    /// Blocks that may be parsed and not yet handed out.
    ahead: u64,
}

struct BlockInput {
    input: Input,
    block_bytes: usize,
    /// The beginning of a line, which the next block begins with.
    left_over: Vec<u8>,
    /// Number of the next block.
    next: u64,
    /// Whether the input has ended.
    is_at_end: bool,
    /// Whether there is nothing more to take.
    is_done: bool,
}

struct Queue {
    /// Blocks that are ready, by number.
    ready: BTreeMap<u64, Parsed>,
    taken: u64,
    /// Whether nothing more is wanted.
    is_closed: bool,
    /// Whether blocks are still parsed, or only read.
    parses: bool,
    columns: Arc<Columns>,
    /// Memory to use again.
    batches: Vec<EventBatch>,
    buffers: Vec<Vec<u8>>,
}

/// A block of which every line is a row.
struct Plain {
    /// What has read it.
    reader: Reader<io::Empty>,
    bytes: usize,
    batches: Vec<EventBatch>,
}

enum Parsed {
    /// Every line is a row.
    Plain(Box<Plain>),
    /// To be read in sequence.
    Odd(Text),
    /// The block and all that follows, to be read in sequence.
    Rest(Text, Input),
    Failed(io::Error),
    End,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockInput {
    /// Reads the next block of whole lines into `buffer`.
    fn read(&mut self, mut buffer: Vec<u8>) -> Parsed {
        if self.is_at_end {
            self.is_done = true;
            return Parsed::End;
        }
        let mut end = self.left_over.len();
        let mut wanted = end + self.block_bytes;
        loop {
            // The contents do not matter, so memory that was used before is taken as it is.
            if buffer.len() < wanted + WINDOW {
                buffer.resize(wanted + WINDOW, 0);
            }
            buffer[..self.left_over.len()].copy_from_slice(&self.left_over);
            self.is_at_end = match self.fill(&mut buffer[..wanted], &mut end) {
                Ok(is_at_end) => is_at_end,
                Err(error) => {
                    self.is_done = true;
                    return Parsed::Failed(error);
                }
            };
            let whole_end = memchr::memrchr(b'\n', &buffer[..end]).map_or(0, |at| at + 1);
            if self.is_at_end {
                return Parsed::Odd(Text { buffer, whole_end, end });
            }
            if whole_end > 0 {
                self.left_over.clear();
                self.left_over.extend_from_slice(&buffer[whole_end..end]);
                return Parsed::Odd(Text { buffer, whole_end, end: whole_end });
            }
            if end > LINE_BYTES_MAX {
                return self.rest(Text { buffer, whole_end, end });
            }
            wanted = end + self.block_bytes;
        }
    }

    /// Reads until `buffer` is full or the input ends; whether it does.
    fn fill(&mut self, buffer: &mut [u8], end: &mut usize) -> io::Result<bool> {
        while *end < buffer.len() {
            match self.input.read(&mut buffer[*end..]) {
                Ok(0) => return Ok(true),
                // A reader that claims more than it was given room for is broken; do not believe it.
                Ok(count) => *end = (*end + count).min(buffer.len()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn rest(&mut self, block: Text) -> Parsed {
        self.is_done = true;
        Parsed::Rest(block, std::mem::replace(&mut self.input, Box::new(io::empty())))
    }
}

impl Shared {
    /// Reads and parses blocks until the input ends or nothing more is wanted.
    fn work(&self) {
        let _close = CloseOnPanic(self);
        loop {
            let buffer = lock(&self.queue).buffers.pop().unwrap_or_default();
            let (number, read) = {
                let mut input = lock(&self.input);
                if input.is_done {
                    return;
                }
                let (number, parses) = (input.next, lock(&self.queue).parses);
                input.next += 1;
                let read = match input.read(buffer) {
                    Parsed::Odd(block) if !parses && !input.is_at_end => {
                        // What was left over is still behind the whole lines.
                        let end = block.whole_end + input.left_over.len();
                        input.rest(Text { end, ..block })
                    }
                    read => read,
                };
                (number, read)
            };
            let parsed = match read {
                Parsed::Odd(block) => self.parse(block),
                other => other,
            };
            let mut queue = lock(&self.queue);
            while number >= queue.taken + self.ahead && !queue.is_closed {
                queue = self.has_room.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.is_closed {
                return;
            }
            queue.ready.insert(number, parsed);
            self.is_ready.notify_one();
        }
    }

    fn parse(&self, block: Text) -> Parsed {
        let columns = Arc::clone(&lock(&self.queue).columns);
        let (whole_end, end) = (block.whole_end, block.end);
        let mut reader = Reader::of_block(block, Parser::new(Columns::clone(&columns), self.date));
        let mut batches = Vec::new();
        while reader.is_plain() && !reader.is_at_end() {
            let mut batch = lock(&self.queue).batches.pop().unwrap_or_default();
            // An error is kept by a line that is no row.
            let _ = reader.next(&mut batch);
            batches.push(batch);
        }
        if reader.is_plain() {
            return Parsed::Plain(Box::new(Plain { reader, bytes: end, batches }));
        }
        lock(&self.queue).batches.append(&mut batches);
        Parsed::Odd(Text { buffer: reader.take_buffer(), whole_end, end })
    }

    /// Waits for a block; none if a thread panicked.
    fn take(&self, number: u64) -> Option<Parsed> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(parsed) = queue.ready.remove(&number) {
                queue.taken = number + 1;
                self.has_room.notify_all();
                return Some(parsed);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.is_ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    /// Lets threads end, and the reader not wait for them.
    fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.has_room.notify_all();
        self.is_ready.notify_all();
    }
}

/// Closes the queue if its thread panics: the reader must not wait for a block that never comes.
struct CloseOnPanic<'a>(&'a Shared);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

impl ParallelReader {
    /// Reads the header of `input` and starts to read on; `path` is what messages call it and what names the device.
    ///
    /// # Errors
    /// As those of [`Reader::open`], and [`Error::Io`] if no thread can be started.
    pub fn open(
        input: impl Read + Send + 'static,
        path: impl AsRef<Path>,
        props: &ReadProps,
        parallel: &ParallelProps,
    ) -> Result<Self> {
        let path = path.as_ref();
        let mut main = Reader::open(Box::new(input) as Input, path, props)?;
        let handed_over = main.hand_over(Box::new(io::empty()));
        let is_divided = handed_over.is_some();
        let (input, left_over) = handed_over.unwrap_or_else(|| (Box::new(io::empty()), Vec::new()));
        let block_bytes = parallel.block_bytes.max(1);
        let input =
            BlockInput { input, block_bytes, left_over, next: 0, is_at_end: false, is_done: !is_divided };
        let queue = Queue {
            ready: BTreeMap::new(),
            taken: 0,
            is_closed: false,
            parses: true,
            columns: Arc::new(main.columns().clone()),
            batches: Vec::new(),
            buffers: Vec::new(),
        };
        let mut reader = Self {
            main,
            batches: VecDeque::new(),
            shared: Arc::new(Shared {
                input: Mutex::new(input),
                queue: Mutex::new(queue),
                is_ready: Condvar::new(),
                has_room: Condvar::new(),
                date: props.date,
                ahead: 2 * parallel.threads as u64 + 2,
            }),
            threads: Vec::new(),
            next: 0,
            odd_blocks: 0,
            state: if is_divided { State::Main } else { State::Rest },
        };
        for _ in 0..if is_divided { parallel.threads.max(1) } else { 0 } {
            let shared = Arc::clone(&reader.shared);
            let thread = std::thread::Builder::new().name("floodmark-parse".into());
            let started = thread.spawn(move || shared.work());
            reader.threads.push(started.map_err(Error::io("starting a thread to read", path))?);
        }
        Ok(reader)
    }

    /// States how long the input is, if that is known, for [`Source::progress`].
    #[must_use]
    pub fn with_total_bytes(mut self, total_bytes: Option<u64>) -> Self {
        self.main.set_total_bytes(total_bytes);
        self
    }

    /// Takes the next block; `main` or `batches` has what is in it.
    fn take_block(&mut self) -> Result<()> {
        let Some(parsed) = self.shared.take(self.next) else { self.resume_panic() };
        self.next += 1;
        match parsed {
            Parsed::Plain(plain) => {
                let Plain { mut reader, bytes, mut batches } = *plain;
                let buffer = reader.take_buffer();
                if self.main.absorb(&reader, bytes, &mut batches) {
                    self.odd_blocks = 0;
                    self.batches.extend(batches);
                    lock(&self.shared.queue).buffers.push(buffer);
                } else {
                    self.read_odd(Text { buffer, whole_end: bytes, end: bytes });
                }
            }
            Parsed::Odd(block) => self.read_odd(block),
            Parsed::Rest(block, input) => {
                self.main.go_on(block);
                self.main.set_input(input);
                self.state = State::Rest;
            }
            Parsed::Failed(error) => {
                self.state = State::Rest;
                return Err(Error::io("reading", self.main.path())(error));
            }
            Parsed::End => self.state = State::Rest,
        }
        Ok(())
    }

    /// Lets `main` read a block.
    fn read_odd(&mut self, block: Text) {
        self.odd_blocks += 1;
        self.state = State::Main;
        let buffer = self.main.go_on(block);
        let mut queue = lock(&self.shared.queue);
        queue.parses &= self.odd_blocks <= ODD_BLOCKS_MAX;
        queue.buffers.push(buffer);
    }

    /// Goes on to blocks, once `main` has read its lines; they may have been a header.
    fn go_on_to_blocks(&mut self) {
        self.state = State::Blocks;
        let mut queue = lock(&self.shared.queue);
        if *queue.columns != *self.main.columns() {
            queue.columns = Arc::new(self.main.columns().clone());
        }
    }

    /// Hands the panic of a thread on.
    fn resume_panic(&mut self) -> ! {
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        unreachable!("only a thread that panics closes the queue")
    }
}

impl Source for ParallelReader {
    fn tables(&self) -> &Tables {
        self.main.tables()
    }

    fn next(&mut self, batch: &mut EventBatch) -> Result<bool> {
        loop {
            if let Some(next) = self.batches.pop_front() {
                let used = std::mem::replace(batch, next);
                lock(&self.shared.queue).batches.push(used);
                self.main.hand_out(batch);
                return Ok(true);
            }
            if self.state != State::Blocks {
                match self.main.next(batch) {
                    Ok(false) if self.state == State::Main => self.go_on_to_blocks(),
                    Err(error) => {
                        self.state = State::Rest;
                        return Err(error);
                    }
                    read => return read,
                }
            }
            if let Err(error) = self.take_block() {
                batch.clear();
                return Err(error);
            }
        }
    }

    fn losses(&self) -> Losses {
        self.main.losses()
    }

    fn progress(&self) -> Progress {
        self.main.progress()
    }

    fn place(&self, event: u64) -> Option<String> {
        self.main.place(event)
    }
}

impl Drop for ParallelReader {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A panic was handed on where its block was missed.
            let _ = thread.join();
        }
    }
}
