//! Allocations, frees and failures.
//!
//! A null domain is that of memory nothing is known about.
#![expect(unsafe_code, reason = "the interface is C: exported names, pointers of the caller")]

use floodmark_event::event::StackId;
use floodmark_tail::{self as tail, AllocDomain, Stamp as TailStamp, When, Writer};

use crate::abi::{Domain, GLOBAL, Stamp};
use crate::recorders::{caught, find, with_writer};

/// Reads a domain.
///
/// # Safety
/// `domain` is null or valid.
#[inline]
unsafe fn domain_of(domain: *const Domain) -> AllocDomain {
    // SAFETY: as the caller guarantees.
    unsafe { domain.as_ref() }.map_or_else(AllocDomain::default, |domain| (*domain).into())
}

/// Reads a stamp; a null pointer is now, on the calling thread.
///
/// # Safety
/// `stamp` is null or valid.
pub(crate) unsafe fn stamp_of(stamp: *const Stamp) -> TailStamp {
    // SAFETY: as the caller guarantees.
    unsafe { stamp.as_ref() }.map_or_else(|| When::Now.into(), |stamp| (*stamp).into())
}

/// Returns the writer of a recorder if it records: programs that are not recorded pay for this check alone.
#[inline]
fn active(recorder: u64) -> Option<&'static Writer> {
    find(recorder).filter(|writer| writer.is_recording())
}

/// Records that a block was allocated.
///
/// # Safety
/// `domain` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_alloc(
    recorder: u64,
    address: u64,
    bytes: u64,
    domain: *const Domain,
    stack: u32,
) {
    let Some(writer) = active(recorder) else { return };
    caught((), || {
        // SAFETY: as the caller guarantees.
        let domain = unsafe { domain_of(domain) };
        if recorder == GLOBAL {
            tail::alloc(address, bytes, &domain, StackId(stack));
        } else {
            writer.alloc(address, bytes, &domain, StackId(stack));
        }
    });
}

/// Records that a block is about to be freed.
///
/// # Safety
/// `domain` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_free(recorder: u64, address: u64, bytes: u64, domain: *const Domain) {
    let Some(writer) = active(recorder) else { return };
    caught((), || {
        // SAFETY: as the caller guarantees.
        let domain = unsafe { domain_of(domain) };
        if recorder == GLOBAL {
            tail::free(address, bytes, &domain);
        } else {
            writer.free(address, bytes, &domain);
        }
    });
}

/// Records that an allocation failed.
///
/// # Safety
/// `domain` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_failure(recorder: u64, bytes: u64, domain: *const Domain, stack: u32) {
    // SAFETY: as the caller guarantees.
    with_writer(recorder, |writer| writer.failure(bytes, &unsafe { domain_of(domain) }, StackId(stack)));
}

/// Records that a block was allocated, at a time and on a thread of its own.
///
/// # Safety
/// `domain` and `stamp` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_alloc_at(
    recorder: u64,
    address: u64,
    bytes: u64,
    domain: *const Domain,
    stack: u32,
    stamp: *const Stamp,
) {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        let (domain, stamp) = unsafe { (domain_of(domain), stamp_of(stamp)) };
        writer.alloc_at(address, bytes, &domain, StackId(stack), stamp);
    });
}

/// Records that a block was freed, at a time and on a thread of its own.
///
/// # Safety
/// `domain` and `stamp` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_free_at(
    recorder: u64,
    address: u64,
    bytes: u64,
    domain: *const Domain,
    stamp: *const Stamp,
) {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        let (domain, stamp) = unsafe { (domain_of(domain), stamp_of(stamp)) };
        writer.free_at(address, bytes, &domain, stamp);
    });
}

/// Records that an allocation failed, at a time and on a thread of its own.
///
/// # Safety
/// `domain` and `stamp` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn floodmark_failure_at(
    recorder: u64,
    bytes: u64,
    domain: *const Domain,
    stack: u32,
    stamp: *const Stamp,
) {
    with_writer(recorder, |writer| {
        // SAFETY: as the caller guarantees.
        let (domain, stamp) = unsafe { (domain_of(domain), stamp_of(stamp)) };
        writer.failure_at(bytes, &domain, StackId(stack), stamp);
    });
}
