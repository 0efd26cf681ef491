//! The data directory, which stays empty.

use std::{fs::DirBuilder, io, path::Path};

/// Creates the directory and its parents; one that is there already will do.
///
/// Readable by its owner alone, like etcd's: whoever finds it there after a test must not find it
/// different.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fl_20_created_with_its_parents_and_left_alone_afterwards() {
        let root = std::env::temp_dir().join(format!("revstore-data-dir-{}", std::process::id()));
        let path = root.join("a/b");
        create(&path).unwrap();
        std::fs::write(path.join("file"), "kept").unwrap();
        create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "kept");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
