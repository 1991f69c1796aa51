//! Page faults of threads, which tell the thread that made its process grow.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::procfs;
use crate::tree::walk::{self, Path};

/// Number of processes whose counters are kept.
const MOST_PROCESSES: usize = 4096;

/// The thread of a process that had most page faults, by the counters of those that still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) thread: i32,
    /// Its page faults.
    pub(crate) faults: u64,
    /// Whether there is no other thread.
    pub(crate) is_alone: bool,
}

/// Page faults of each thread when stacks of its process were last taken because memory had grown.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    of_process: HashMap<i32, HashMap<i32, u64>>,
}

impl Faults {
    /// Reads the counters of a process; returns the thread with most page faults since the last call, unless
    /// none had any.
    pub(crate) fn most(&mut self, process: i32) -> Option<Counted> {
        let counts = walk::threads_of(process)
            .filter_map(|thread| Some((thread, read(process, thread).ok()??)))
            .collect();
        self.update(process, counts)
    }

    fn update(&mut self, process: i32, counts: HashMap<i32, u64>) -> Option<Counted> {
        if self.of_process.len() >= MOST_PROCESSES {
            self.of_process.clear();
        }
        let before = self.of_process.remove(&process).unwrap_or_default();
        let new = |thread: i32, count: u64| count.saturating_sub(before.get(&thread).copied().unwrap_or(0));
        let most = counts.iter().map(|(&thread, &count)| (new(thread, count), thread)).max();
        let is_alone = counts.len() < 2;
        self.of_process.insert(process, counts);
        most.filter(|(faults, _)| *faults > 0).map(|(faults, thread)| Counted { thread, faults, is_alone })
    }
}

fn read(process: i32, thread: i32) -> io::Result<Option<u64>> {
    let mut buffer = [0; 1024];
    let length = Path::of_thread(process, thread, "stat").open()?.read_at(&mut buffer, 0)?;
    Ok(procfs::stat(&buffer[..length]).map(|stat| stat.faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_with_most_new_faults_made_the_process_grow() {
        let mut faults = Faults::default();
        let counted = |thread, faults| Some(Counted { thread, faults, is_alone: false });
        assert_eq!(faults.update(1, [(1, 900), (2, 10)].into()), counted(1, 900), "since they began");
        assert_eq!(faults.update(1, [(1, 901), (2, 30), (3, 5)].into()), counted(2, 20));
        assert_eq!(faults.update(1, [(1, 901), (2, 30), (3, 5)].into()), None, "none had any");
        let alone = Counted { thread: 1, faults: 98, is_alone: true };
        assert_eq!(faults.update(1, [(1, 999)].into()), Some(alone), "there is no other thread");
        assert_eq!(faults.update(2, [(7, 3), (8, 4)].into()), counted(8, 4));
    }

    #[test]
    fn faults_of_our_own_threads_are_counted_apart() {
        let me = std::process::id() as i32;
        let mut faults = Faults::default();
        std::thread::scope(|scope| {
            let (send, wait) = std::sync::mpsc::channel::<()>();
            let (tell, hear) = std::sync::mpsc::channel::<i32>();
            scope.spawn(move || {
                let thread = std::fs::read_link("/proc/thread-self").expect("there is a link");
                let id = thread.file_name().and_then(|name| name.to_str()?.parse().ok());
                wait.recv().expect("it is sent");
                let memory = std::hint::black_box(vec![1u8; 64 << 20]);
                tell.send(id.expect("a number")).expect("it is received");
                let _ = wait.recv();
                drop(memory);
            });
            faults.most(me);
            send.send(()).expect("it is received");
            let thread = hear.recv().expect("it is sent");
            assert_eq!(faults.most(me).map(|counted| counted.thread), Some(thread));
            drop(send);
        });
    }
}
