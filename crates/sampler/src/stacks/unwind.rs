//! Unwinding of registers and a copied stack to addresses in modules.

use std::ops::Range;
use std::sync::Arc;

use framehop::{
    CacheNative, FrameAddress, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative,
};

use super::image::{Image, Images};
use super::maps::{Code, Maps};
use super::tracer::Copied;
use crate::sys::trace::Registers;

/// Largest number of frames of a stack; outer frames are cut.
const MOST_FRAMES: usize = 1024;

/// Cache of unwind rules for all processes.
pub(crate) type Cache = CacheNative<MayAllocateDuringUnwind>;

/// Position of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The module; none for code without a file.
    pub(crate) image: Option<Arc<Image>>,
    /// Address of the instruction, or of the call that has not returned: in the module's file, or in memory.
    pub(crate) address: u64,
}

/// Code mappings of a process, prepared for unwinding.
pub(crate) struct Walker {
    code: Vec<Code>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    /// Address ranges in memory, with their modules and load offsets.
    loaded: Vec<(Range<u64>, Arc<Image>, u64)>,
}

impl Walker {
    pub(crate) fn new(maps: &Maps, images: &Images) -> Self {
        let mut unwinder = UnwinderNative::new();
        let mut loaded = Vec::new();
        for code in &maps.code {
            let Some(image) = images.get(&code.file) else { continue };
            let Some(bias) = image.bias(code) else { continue };
            let range = code.start..code.end;
            unwinder.add_module(image.module(range.clone(), bias));
            loaded.push((range, Arc::clone(image), bias));
        }
        Self { code: maps.code.clone(), unwinder, loaded }
    }

    /// Whether the process still has the same code mapped.
    pub(crate) fn is_of(&self, maps: &Maps) -> bool {
        self.code == maps.code
    }

    /// Frames of a thread, innermost first, and whether the outermost one was reached.
    pub(crate) fn walk(&self, copied: &Copied, cache: &mut Cache) -> (Vec<Place>, End) {
        let bottom = copied.registers.stack;
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(bottom).ok_or(())?).map_err(|_| ())?;
            let bytes = copied.stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let instruction = copied.registers.instruction;
        let mut frames =
            self.unwinder.iter_frames(instruction, registers(&copied.registers), cache, &mut read);
        let mut places = Vec::new();
        loop {
            match frames.next() {
                Ok(Some(_)) if places.len() == MOST_FRAMES => return (places, End::Cut),
                Ok(Some(frame)) => places.push(self.place(frame)),
                Ok(None) => return (places, End::Outermost),
                Err(_) => return (places, End::Cut),
            }
        }
    }

    fn place(&self, frame: FrameAddress) -> Place {
        // A return address follows the call and may belong to the next function.
        let address = frame.address_for_lookup();
        let at = self.loaded.partition_point(|(range, _, _)| range.start <= address);
        let found = at.checked_sub(1).and_then(|at| self.loaded.get(at));
        match found.filter(|(range, _, _)| range.contains(&address)) {
            Some((_, image, bias)) => {
                Place { image: Some(Arc::clone(image)), address: address.wrapping_sub(*bias) }
            }
            None => Place { image: None, address },
        }
    }
}

/// How a stack ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At the first function of the thread.
    #[default]
    Outermost,
    /// Before that: the outer frames could not be found.
    Cut,
}

#[cfg(target_arch = "x86_64")]
fn registers(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn registers(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.link, registers.stack, registers.frame)
}
