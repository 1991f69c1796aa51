//! Where CUPTI may be: in the process already, beside the program's own CUDA, in the packages of its Python, or installed.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use floodmark_stacks::module_files;

use super::driver;
use crate::config::path_variable;

/// Names of the library with the version of CUDA that each is of, newest first.
const NAMES: [(&str, u32); 3] = [("libcupti.so.13", 13), ("libcupti.so.12", 12), ("libcupti.so.11.8", 11)];
/// Where the system has CUDA.
const USUAL: &str = "/usr/local/cuda";

/// Files to try, the best first. A file that the user names is the only one.
pub(super) fn candidates(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    // A CUPTI that is newer than the driver does not work with it.
    let newest = driver::cuda_version().map_or(u32::MAX, |version| version / 1000);
    let names: Vec<&str> =
        NAMES.iter().filter(|(_, major)| *major <= newest).map(|(name, _)| *name).collect();
    let loaded = names.iter().filter(|name| is_loaded(name)).map(PathBuf::from);
    let folders = folders(&module_files());
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let unversioned = folders.iter().map(|folder| folder.join("libcupti.so"));
    let found = files.chain(unversioned).filter(|file| file.is_file());
    // The loader knows more places than we do.
    let named = names.iter().map(PathBuf::from);
    let mut all: Vec<PathBuf> = loaded.chain(found).chain(named).collect();
    let mut seen = Vec::new();
    all.retain(|file| {
        !seen.contains(file) && {
            seen.push(file.clone());
            true
        }
    });
    all
}

fn is_loaded(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a C string; nothing is loaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !library.is_null() {
        // SAFETY: counted just now.
        unsafe { libc::dlclose(library) };
    }
    !library.is_null()
}

/// Folders that may have the library, by the modules of the program and by the environment.
fn folders(modules: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    let is_runtime = |file: &&PathBuf| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcudart"))
    };
    for runtime in modules.iter().filter(is_runtime) {
        let Some(folder) = runtime.parent() else { continue };
        add(folder.to_owned());
        add(folder.join("../extras/CUPTI/lib64"));
        add(folder.join("../../../extras/CUPTI/lib64"));
        add(folder.join("../../cuda_cupti/lib"));
    }
    for module in modules {
        let packages = module.ancestors().find(|folder| {
            folder.file_name().is_some_and(|name| name == "site-packages" || name == "dist-packages")
        });
        if let Some(packages) = packages {
            add(packages.join("nvidia/cu13/lib"));
            add(packages.join("nvidia/cuda_cupti/lib"));
        }
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| path_variable(name));
    for home in homes.chain([PathBuf::from(USUAL)]) {
        add(home.join("extras/CUPTI/lib64"));
        add(home.join("lib64"));
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_beside_the_programs_modules_are_looked_at() {
        let found = folders(&[
            "/env/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so".into(),
            "/env/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12".into(),
            "/opt/cuda-12.9/lib64/libcudart.so.12".into(),
        ]);
        for folder in [
            "/env/lib/python3.12/site-packages/nvidia/cuda_cupti/lib",
            "/env/lib/python3.12/site-packages/nvidia/cu13/lib",
            "/opt/cuda-12.9/lib64/../extras/CUPTI/lib64",
            "/usr/local/cuda/extras/CUPTI/lib64",
        ] {
            assert!(found.contains(&PathBuf::from(folder)), "{folder} {found:?}");
        }
        assert_eq!(candidates(Some(Path::new("/x/libcupti.so"))), [PathBuf::from("/x/libcupti.so")]);
    }
}
