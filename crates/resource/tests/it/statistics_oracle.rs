//! Statistics against all that happened, added up anew at each question.
//!
//! Three threads do what a script says, one step at a time, so that it is known what happened before
//! what.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use floodmark_resource::{Counter, Counters, NoScope, Scope, ScopeFigures, Simulated, Statistics};
use proptest::prelude::*;

use crate::blocks::{Block, give, take};

const THREADS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u64),
    /// Frees one of the live blocks.
    Free(usize),
    Push,
    Pop,
    Open,
    /// Finishes one of the named scopes that the thread has open.
    Finish(usize),
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Done,
    Block(Block),
    Pushed(Counters),
    Popped(Result<Counters, NoScope>),
    Finished(Option<ScopeFigures>),
    Looked(Counters, Counters),
}

#[derive(Clone, Copy)]
enum Order {
    Step(Step),
    Free(Block),
}

/// What a thread does until it hears nothing more.
fn work(statistics: &Statistics<Simulated>, orders: &Receiver<Order>, answers: &Sender<Answer>) {
    let mut scopes: Vec<Scope> = Vec::new();
    for order in orders {
        let answer = match order {
            Order::Free(block) => {
                give(statistics, block);
                Answer::Done
            }
            Order::Step(Step::Alloc(bytes)) => Answer::Block(take(statistics, bytes)),
            Order::Step(Step::Free(_)) => Answer::Done,
            Order::Step(Step::Push) => Answer::Pushed(statistics.push()),
            Order::Step(Step::Pop) => Answer::Popped(statistics.pop()),
            Order::Step(Step::Open) => {
                scopes.push(statistics.scope("scope"));
                Answer::Done
            }
            Order::Step(Step::Finish(_)) if scopes.is_empty() => Answer::Finished(None),
            Order::Step(Step::Finish(pick)) => {
                let at = pick % scopes.len();
                let inside = scopes.split_off(at + 1);
                let figures = scopes.pop().map(Scope::finish);
                drop(inside);
                Answer::Finished(figures)
            }
            Order::Step(Step::Look) => Answer::Looked(statistics.counters(), statistics.process_counters()),
        };
        answers.send(answer).expect("the script waits");
    }
}

/// Something that happened: a block was allocated (by its number) or freed, by a thread.
#[derive(Clone, Copy)]
struct Happened {
    thread: usize,
    block: usize,
    bytes: i64,
    is_alloc: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Pushed,
    Named,
}

#[derive(Default)]
struct Oracle {
    history: Vec<Happened>,
    /// Scopes by thread, each with how long the history was.
    open: [Vec<(Sort, usize)>; THREADS],
    live: Vec<(usize, Block)>,
    blocks: usize,
}

fn add_up<'a>(happened: impl Iterator<Item = &'a Happened>) -> Counters {
    let mut counters = Counters::default();
    let change = |counter: &mut Counter, amount: i64, is_alloc: bool| {
        if is_alloc {
            counter.total += amount;
            counter.value += amount;
            counter.peak = counter.peak.max(counter.value);
        } else {
            counter.value -= amount;
        }
    };
    for one in happened {
        change(&mut counters.bytes, one.bytes, one.is_alloc);
        change(&mut counters.allocations, 1, one.is_alloc);
    }
    counters
}

impl Oracle {
    fn process(&self) -> Counters {
        add_up(self.history.iter())
    }

    fn relative(&self, thread: usize, since: usize) -> Counters {
        add_up(self.history[since..].iter().filter(|one| one.thread == thread))
    }

    fn innermost(&self, thread: usize) -> Counters {
        self.open[thread].last().map_or_else(|| self.process(), |(_, since)| self.relative(thread, *since))
    }

    fn held(&self, thread: usize, since: usize) -> Counters {
        let history = &self.history[since..];
        let mine =
            |block| history.iter().any(|one| one.is_alloc && one.thread == thread && one.block == block);
        add_up(history.iter().filter(|one| one.bytes > 0 && mine(one.block)))
    }

    /// What `thread` should answer to `step`, other than with a block.
    fn expect(&mut self, thread: usize, step: Step) -> Answer {
        match step {
            Step::Alloc(_) | Step::Free(_) => Answer::Done,
            Step::Push => {
                let before = self.innermost(thread);
                self.open[thread].push((Sort::Pushed, self.history.len()));
                Answer::Pushed(before)
            }
            Step::Pop => match self.open[thread].last() {
                Some((Sort::Pushed, since)) => {
                    let counters = self.relative(thread, *since);
                    self.open[thread].pop();
                    Answer::Popped(Ok(counters))
                }
                _ => Answer::Popped(Err(NoScope)),
            },
            Step::Open => {
                self.open[thread].push((Sort::Named, self.history.len()));
                Answer::Done
            }
            Step::Finish(pick) => {
                let open = &self.open[thread];
                let named: Vec<usize> = (0..open.len()).filter(|at| open[*at].0 == Sort::Named).collect();
                let Some(at) = (!named.is_empty()).then(|| named[pick % named.len()]) else {
                    return Answer::Finished(None);
                };
                let since = open[at].1;
                self.open[thread].truncate(at);
                let (relative, held) = (self.relative(thread, since), self.held(thread, since));
                Answer::Finished(Some(ScopeFigures { relative, held }))
            }
            Step::Look => Answer::Looked(self.innermost(thread), self.process()),
        }
    }
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        6 => (0u64..2000).prop_map(|bytes| Step::Alloc(if bytes < 50 { 0 } else { bytes })),
        5 => any::<usize>().prop_map(Step::Free),
        2 => Just(Step::Push),
        2 => Just(Step::Pop),
        2 => Just(Step::Open),
        2 => any::<usize>().prop_map(Step::Finish),
        3 => Just(Step::Look),
    ];
    (0..THREADS, step)
}

fn play(script: &[(usize, Step)]) {
    let statistics = Arc::new(Statistics::new(Simulated::new(1 << 30)));
    let mut oracle = Oracle::default();
    std::thread::scope(|threads| {
        let (answer_to, answers) = mpsc::channel();
        let orders: Vec<Sender<Order>> = (0..THREADS)
            .map(|_| {
                let (order, orders) = mpsc::channel();
                let (statistics, answer_to) = (Arc::clone(&statistics), answer_to.clone());
                threads.spawn(move || work(&statistics, &orders, &answer_to));
                order
            })
            .collect();
        for &(thread, step) in script {
            let expected = oracle.expect(thread, step);
            let order = match step {
                Step::Free(_) if oracle.live.is_empty() => continue,
                Step::Free(pick) => {
                    let (block, freed) = oracle.live.swap_remove(pick % oracle.live.len());
                    let bytes = freed.bytes as i64;
                    oracle.history.push(Happened { thread, block, bytes, is_alloc: false });
                    Order::Free(freed)
                }
                step => Order::Step(step),
            };
            orders[thread].send(order).expect("the thread waits");
            let answer = answers.recv().expect("the thread answers");
            if let Answer::Block(block) = answer {
                let bytes = block.bytes as i64;
                oracle.history.push(Happened { thread, block: oracle.blocks, bytes, is_alloc: true });
                oracle.live.push((oracle.blocks, block));
                oracle.blocks += 1;
            } else {
                assert_eq!(answer, expected, "thread {thread} at {step:?}");
            }
            assert_eq!(statistics.process_counters(), oracle.process());
        }
        drop(orders);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn statistics_are_what_happened(script in proptest::collection::vec(step(), 0..150)) {
        play(&script);
    }
}
