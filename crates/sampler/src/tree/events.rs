//! Fork, exec and exit events of processes, from the kernel's process connector.
//!
//! The connector reports every process of the host, in order, with monotonic times. Threads and other events
//! are filtered out in the kernel. It is not available in containers, and before Linux 6.6 it needs
//! `CAP_NET_ADMIN`. Without it the tree is found by scanning, and short-lived processes may be missed.

use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::netlink::{Instruction, Socket};

/// Size of the receive buffer: about ten thousand messages.
const ROOM_BYTES: i32 = 8 << 20;

const CONNECTOR: i32 = 11;
const PROCESS_GROUP: u32 = 1;
const LISTEN: u32 = 1;

// Offsets in a message: the netlink header, the connector's header, then the event.
const HEADER_BYTES: usize = 16;
const CONNECTOR_BYTES: usize = 20;
const WHAT: usize = HEADER_BYTES + CONNECTOR_BYTES;
const TIME: usize = WHAT + 8;
const DATA: usize = TIME + 8;

const NONE: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// An event of a process of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Time in monotonic nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) what: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A process was forked.
    Fork { parent: i32, child: i32 },
    /// A process called exec.
    Exec { pid: i32 },
    /// The first thread of a process ended.
    Exit { pid: i32, status: i32 },
}

/// Result of reading the connector.
#[derive(Debug)]
pub(crate) enum Next {
    Event(Event),
    /// There is no event now.
    Nothing,
    /// Events were lost because the receive buffer was full.
    Lost,
}

pub(crate) struct Events {
    socket: Socket,
}

impl Events {
    /// Subscribes to events.
    ///
    /// # Errors
    /// The reason why it is not possible, as text.
    pub(crate) fn open() -> Result<Self, String> {
        let socket = Socket::open(CONNECTOR, PROCESS_GROUP)
            .map_err(|error| format!("no process connector here: {error}"))?;
        socket.ask_for_room(ROOM_BYTES);
        // Without the filter there is only more to read.
        let _ = socket.filter(&filter());
        socket.send(&subscription()).map_err(|error| format!("the process connector refused: {error}"))?;
        // The kernel answers before the call returns, or not at all if this is another namespace.
        let mut buffer = [0; 256];
        loop {
            match socket.receive(&mut buffer) {
                Ok(Some(message)) if number(message, WHAT) == Some(NONE) => {
                    return match number(message, DATA) {
                        Some(0) => Ok(Self { socket }),
                        Some(errno) => {
                            let error = std::io::Error::from_raw_os_error(errno as i32);
                            Err(format!("the process connector refused: {error}"))
                        }
                        None => Err("the process connector answered nonsense".into()),
                    };
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err("the process connector does not serve this namespace".into()),
                Err(error) => return Err(format!("the process connector failed: {error}")),
            }
        }
    }

    pub(crate) fn next(&self) -> Next {
        let mut buffer = [0; 256];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(None) => return Next::Nothing,
                Ok(Some(message)) => {
                    if let Some(event) = decode(message) {
                        return Next::Event(event);
                    }
                }
                Err(_) => return Next::Lost,
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn number(message: &[u8], offset: usize) -> Option<u32> {
    let bytes = message.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Decodes an event of a process; returns none for threads and other events.
fn decode(message: &[u8]) -> Option<Event> {
    let field = |index: usize| number(message, DATA + 4 * index).map(|number| number as i32);
    let what = match number(message, WHAT)? {
        FORK => {
            let (parent, child) = (field(1)?, field(3)?);
            (field(2)? == child).then_some(EventKind::Fork { parent, child })?
        }
        EXEC => {
            let pid = field(1)?;
            (field(0)? == pid).then_some(EventKind::Exec { pid })?
        }
        EXIT => {
            let (pid, status) = (field(1)?, field(2)?);
            (field(0)? == pid).then_some(EventKind::Exit { pid, status })?
        }
        _ => return None,
    };
    let time = message.get(TIME..TIME + 8)?;
    Some(Event { at_ns: u64::from_ne_bytes(time.try_into().ok()?), what })
}

/// The message that subscribes to events.
fn subscription() -> Vec<u8> {
    let length = (HEADER_BYTES + CONNECTOR_BYTES + 4) as u32;
    let mut message = Vec::with_capacity(length as usize);
    // Netlink header: length, type NLMSG_DONE and no flags, sequence, port.
    for word in [length, 3, 0, 0] {
        message.extend(word.to_ne_bytes());
    }
    // Connector header: group, value, sequence, acknowledgement, then length of what follows and flags.
    for word in [PROCESS_GROUP, 1, 0, 0] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(4u16.to_ne_bytes());
    message.extend(0u16.to_ne_bytes());
    message.extend(LISTEN.to_ne_bytes());
    message
}

/// A filter that accepts the answer to the subscription, and fork, exec and exit events of processes: those
/// in which the ids of thread and process are equal.
fn filter() -> [Instruction; 16] {
    const LOAD: u16 = 0x20;
    const TO_X: u16 = 0x07;
    const IF_EQUAL: u16 = 0x15;
    const IF_EQUAL_X: u16 = 0x1d;
    const RETURN: u16 = 0x06;
    let field = |index: usize| (DATA + 4 * index) as u32;
    [
        (LOAD, 0, 0, WHAT as u32),
        // Filters load in network order.
        (IF_EQUAL, 12, 0, NONE.to_be()),
        (IF_EQUAL, 3, 0, FORK.to_be()),
        (IF_EQUAL, 6, 0, EXEC.to_be()),
        (IF_EQUAL, 5, 0, EXIT.to_be()),
        (RETURN, 0, 0, 0),
        (LOAD, 0, 0, field(2)),
        (TO_X, 0, 0, 0),
        (LOAD, 0, 0, field(3)),
        (IF_EQUAL_X, 4, 5, 0),
        (LOAD, 0, 0, field(0)),
        (TO_X, 0, 0, 0),
        (LOAD, 0, 0, field(1)),
        (IF_EQUAL_X, 0, 1, 0),
        (RETURN, 0, 0, u32::MAX),
        (RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, data: &[u32]) -> Vec<u8> {
        let mut message = vec![0; WHAT];
        message.extend(what.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(7u64.to_ne_bytes());
        for word in data {
            message.extend(word.to_ne_bytes());
        }
        message
    }

    #[test]
    fn only_events_of_whole_processes_are_decoded() {
        let event = |what| Some(Event { at_ns: 7, what });
        let fork = message(FORK, &[10, 10, 20, 20]);
        assert_eq!(decode(&fork), event(EventKind::Fork { parent: 10, child: 20 }));
        assert_eq!(
            decode(&message(FORK, &[11, 10, 20, 20])),
            event(EventKind::Fork { parent: 10, child: 20 })
        );
        assert_eq!(decode(&message(FORK, &[10, 10, 21, 10])), None, "a thread");
        assert_eq!(decode(&message(EXEC, &[20, 20])), event(EventKind::Exec { pid: 20 }));
        let exit = message(EXIT, &[20, 20, 0x0100, 17]);
        assert_eq!(decode(&exit), event(EventKind::Exit { pid: 20, status: 0x0100 }));
        assert_eq!(decode(&message(EXIT, &[21, 20, 0, 17])), None, "a thread");
        assert_eq!(decode(&message(4, &[20, 20, 0, 0])), None, "a change of user");
        assert_eq!(decode(&fork[..fork.len() - 1]), None);
    }
}
