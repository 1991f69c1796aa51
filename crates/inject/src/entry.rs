//! The first instructions of hooks: they pass the caller's registers on, from which its stack is walked.

/// Defines a function that calls another with the caller's stack pointer and base pointer as the last two arguments, in the
/// registers that are named.
macro_rules! with_caller {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $stack:literal, $base:literal, $body:ident
    ) => {
        #[cfg(target_arch = "x86_64")]
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $type),*) -> $result {
            std::arch::naked_asm!(
                concat!("mov ", $stack, ", rsp"),
                concat!("mov ", $base, ", rbp"),
                "jmp {}",
                sym $body
            )
        }

        #[cfg(not(target_arch = "x86_64"))]
        $(#[$attribute])*
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let here = 0_u8;
            // SAFETY: as the caller guarantees.
            unsafe { $body($($argument,)* (&raw const here).addr() as u64, 0) }
        }
    };
}

pub(crate) use with_caller;

/// Instructions that store the registers with arguments as an array and call `{called}` with eax, the array, the caller's
/// stack pointer and its base pointer; then the function returns. The frame can be unwound.
#[cfg(target_arch = "x86_64")]
macro_rules! call_with_arguments {
    () => {
        "push rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov rbp, rsp
        .cfi_def_cfa_register rbp
        push r9
        push r8
        push rcx
        push rdx
        push rsi
        push rdi
        mov edi, eax
        mov rsi, rsp
        lea rdx, [rbp + 8]
        mov rcx, qword ptr [rbp]
        call {called}
        leave
        .cfi_def_cfa rsp, 8
        ret"
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) use call_with_arguments;
