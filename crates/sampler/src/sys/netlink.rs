//! A netlink socket.
#![expect(unsafe_code, reason = "sockets with netlink addresses are C functions")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::checked;

/// One instruction of a socket filter: code, jump if true, jump if false, constant.
pub(crate) type Instruction = (u16, u8, u8, u32);

pub(crate) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Opens a non-blocking socket as a member of `groups`.
    pub(crate) fn open(protocol: libc::c_int, groups: u32) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = checked(unsafe { libc::socket(libc::PF_NETLINK, kind, protocol) })?;
        // SAFETY: the descriptor was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is a netlink address of that length.
        checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Self { fd })
    }

    /// Sets the size of the receive buffer; without privileges the system's limit applies.
    pub(crate) fn ask_for_room(&self, bytes: i32) {
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let length = size_of::<i32>() as libc::socklen_t;
            // SAFETY: `bytes` is a valid int. A failure changes nothing.
            unsafe {
                let fd = self.fd.as_raw_fd();
                libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const bytes).cast(), length);
            }
        }
    }

    /// Attaches a filter for messages.
    pub(crate) fn filter(&self, instructions: &[Instruction]) -> io::Result<()> {
        let mut instructions: Vec<libc::sock_filter> =
            instructions.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
        let program = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
        let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
        // SAFETY: `program` points to `len` instructions; the kernel copies and checks them.
        checked(unsafe {
            let fd = self.fd.as_raw_fd();
            let option = libc::SO_ATTACH_FILTER;
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const program).cast(), length)
        })?;
        Ok(())
    }

    /// Sends a message to the kernel.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the slice is valid for its length.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives the next message of the kernel; returns none if there is none now.
    ///
    /// # Errors
    /// `ENOBUFS` if messages were lost because the receive buffer was full.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            // SAFETY: all zeros is a valid address.
            let mut sender: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            // SAFETY: buffer and address are valid for the lengths given.
            let received = unsafe {
                let (data, room) = (buffer.as_mut_ptr().cast(), buffer.len());
                let address = (&raw mut sender).cast();
                libc::recvfrom(self.fd.as_raw_fd(), data, room, 0, address, &raw mut length)
            };
            if received < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            // Port 0 is the kernel; other processes may be allowed to send to a group.
            if sender.nl_pid == 0 {
                return Ok(buffer.get(..received as usize));
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
