//! Exit statistics of threads, from the kernel's taskstats interface.
//!
//! The kernel sends statistics of every thread of the host that ends, before its memory is released. They
//! hold what cannot be read afterwards: the name of a short-lived process, and its exact peak of resident
//! memory, whichever process its parent is. The interface needs `CAP_NET_ADMIN`; without it, the peak is the
//! high-water mark that was read last.

use std::borrow::Cow;

use crate::outcome::NoExitStats;
use crate::sys::netlink::Socket;

const GENERIC: i32 = 16;
/// Size of the receive buffer: about ten thousand messages.
const ROOM_BYTES: i32 = 8 << 20;

// The controller of generic netlink, which translates the family's name to its number.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY: &[u8] = b"TASKSTATS\0";

// Task statistics.
const GET: u8 = 1;
const REGISTER_CPUS: u16 = 3;
const OF_THREAD: u16 = 4;
const STATISTICS: u16 = 3;
// Offsets in the statistics, which are only ever extended at their end.
const VERSION: usize = 0;
const NAME: usize = 80;
const NAME_BYTES: usize = 32;
const THREAD: usize = 128;
const PEAK_KIB: usize = 200;
const PROCESS: usize = 368;
/// First version that has the process of a thread.
const VERSION_WITH_PROCESS: u16 = 12;

const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;

/// Statistics of a thread that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadExit {
    /// Its process; the thread where the kernel is too old to report it.
    pub(crate) pid: i32,
    pub(crate) thread: i32,
    /// Name, up to a zero byte.
    name: [u8; NAME_BYTES],
    /// Peak of resident bytes of its memory; 0 if it had no memory any more.
    pub(crate) peak_rss_bytes: u64,
}

impl ThreadExit {
    pub(crate) fn name(&self) -> Cow<'_, str> {
        let name = self.name.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name)
    }
}

/// A subscription to exit statistics.
pub(crate) struct ExitStats {
    socket: Socket,
}

impl ExitStats {
    /// Subscribes.
    ///
    /// # Errors
    /// Whether a permission is missing, or the kernel has no such statistics here.
    pub(crate) fn open() -> Result<Self, NoExitStats> {
        let (socket, family) = Self::find_family().ok_or(NoExitStats::Unavailable)?;
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        let mut cpus = cpus.map_err(|_| NoExitStats::Unavailable)?.trim_end().to_owned().into_bytes();
        cpus.push(0);
        let sent = socket.send(&request(family, GET, REGISTER_CPUS, &cpus));
        sent.map_err(|_| NoExitStats::Unavailable)?;
        // A refusal is answered at once; success is not answered.
        let mut buffer = [0; 4096];
        match socket.receive(&mut buffer) {
            Ok(Some(answer)) if u16_at(answer, 4) == Some(libc::NLMSG_ERROR as u16) => {
                match u32_at(answer, HEADER_BYTES).map(|code| (code as i32).wrapping_neg()) {
                    Some(libc::EPERM | libc::EACCES) => Err(NoExitStats::Permission),
                    _ => Err(NoExitStats::Unavailable),
                }
            }
            _ => Ok(Self { socket }),
        }
    }

    /// Opens a socket and asks for the number of the family.
    fn find_family() -> Option<(Socket, u16)> {
        let socket = Socket::open(GENERIC, 0).ok()?;
        socket.ask_for_room(ROOM_BYTES);
        socket.send(&request(CONTROLLER, GET_FAMILY, FAMILY_NAME, FAMILY)).ok()?;
        let mut buffer = [0; 4096];
        let family = family_of(socket.receive(&mut buffer).ok()??)?;
        Some((socket, family))
    }

    /// The next statistics that have arrived; none if there are none now.
    pub(crate) fn next(&self) -> Option<ThreadExit> {
        let mut buffer = [0; 2048];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(Some(message)) => {
                    if let Some(exit) = decode(message) {
                        return Some(exit);
                    }
                }
                // Some were lost; the following ones can still be read.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// A request with one attribute.
fn request(family: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let attribute_bytes = 4 + value.len();
    let length = HEADER_BYTES + GENERIC_BYTES + attribute_bytes.next_multiple_of(4);
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence and port.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend((attribute_bytes as u16).to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value);
    message.resize(length, 0);
    message
}

fn family_of(message: &[u8]) -> Option<u16> {
    let attributes = message.get(HEADER_BYTES + GENERIC_BYTES..)?;
    u16_at(attribute(attributes, FAMILY_ID)?, 0)
}

fn decode(message: &[u8]) -> Option<ThreadExit> {
    let attributes = message.get(HEADER_BYTES + GENERIC_BYTES..)?;
    let statistics = attribute(attribute(attributes, OF_THREAD)?, STATISTICS)?;
    let thread = u32_at(statistics, THREAD)? as i32;
    let has_process = u16_at(statistics, VERSION)? >= VERSION_WITH_PROCESS;
    let pid = if has_process { u32_at(statistics, PROCESS)? as i32 } else { thread };
    let name = statistics.get(NAME..NAME + NAME_BYTES)?.try_into().ok()?;
    let peak_kib = u64::from_ne_bytes(statistics.get(PEAK_KIB..PEAK_KIB + 8)?.try_into().ok()?);
    Some(ThreadExit { pid, thread, name, peak_rss_bytes: peak_kib.saturating_mul(1024) })
}

/// The value of the first attribute of a kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        // The upper bits are flags.
        let found = u16_at(attributes, 2)? & 0x3fff;
        let value = attributes.get(4..length)?;
        if found == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn statistics_of_old_and_new_kernels_are_decoded() {
        for (version, length, pid) in [(8u16, 328, 21), (13, 416, 20)] {
            let mut statistics = vec![0; length];
            statistics[..2].copy_from_slice(&version.to_ne_bytes());
            statistics[NAME..NAME + 5].copy_from_slice(b"a) b\xff");
            statistics[THREAD..THREAD + 4].copy_from_slice(&21u32.to_ne_bytes());
            statistics[PEAK_KIB..PEAK_KIB + 8].copy_from_slice(&7u64.to_ne_bytes());
            if length > PROCESS {
                statistics[PROCESS..PROCESS + 4].copy_from_slice(&20u32.to_ne_bytes());
            }
            let inner = [nested(1, &21u32.to_ne_bytes()), nested(STATISTICS, &statistics)].concat();
            let mut message = vec![0; HEADER_BYTES + GENERIC_BYTES];
            message.extend(nested(OF_THREAD, &inner));
            let exit = decode(&message).expect("statistics");
            assert_eq!((exit.pid, exit.thread, exit.peak_rss_bytes), (pid, 21, 7 << 10));
            assert_eq!(exit.name(), "a) b\u{fffd}");
            (0..message.len()).for_each(|end| assert_eq!(decode(&message[..end]), None));
        }
    }

    #[test]
    fn a_request_names_what_it_asks_for() {
        let message = request(CONTROLLER, GET_FAMILY, FAMILY_NAME, FAMILY);
        assert_eq!(message.len(), 16 + 4 + 4 + 12);
        assert_eq!(attribute(&message[20..], FAMILY_NAME), Some(FAMILY));
        assert_eq!(attribute(&message[20..], FAMILY_ID), None);
    }
}
