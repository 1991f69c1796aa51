//! An export as a folder with a file for each table.

use std::path::Path;

use floodmark_store::Result;

use super::export::{Catalog, Value, Visit};

/// A folder.
pub(crate) struct Folder {
    catalog: Catalog,
}

/// The current row of a scan.
pub(crate) struct FolderRow<'a>(&'a ());

impl FolderRow<'_> {
    pub(super) fn value(&self, _column: usize) -> Value<'_> {
        let () = self.0;
        Value::Null
    }
}

impl Folder {
    pub(super) fn open(_path: &Path) -> Result<Self> {
        Ok(Self { catalog: Catalog::default() })
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn scan(&self, _table: &str, _columns: &[&str], _visit: Visit<'_>) -> Result<()> {
        Ok(())
    }
}

/// Whether a folder has tables of an export.
pub(super) fn is_export(_path: &Path) -> bool {
    false
}
