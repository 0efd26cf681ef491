//! The files of a test that has failed.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    thread,
};

use revstore_control::{Control, service::write_journal, store::DumpForm};

/// Saves a store and its journal if it is dropped by a panic: see [`Server::save_on_panic`](crate::Server::save_on_panic).
///
/// The files are `dump.txt`, which `revstore ctl store load` reads, and `journal.jsonl`. Standard error has the path of their
/// directory.
#[derive(Debug)]
#[must_use = "saves when it is dropped by a panic"]
pub struct SaveOnPanic {
    control: Option<Control>,
    directory: PathBuf,
}

impl SaveOnPanic {
    pub(crate) fn new(control: Option<Control>, directory: PathBuf) -> Self {
        Self { control, directory }
    }
}

impl Drop for SaveOnPanic {
    fn drop(&mut self) {
        let Some(control) = self.control.as_ref().filter(|_| thread::panicking()) else {
            return;
        };
        let saved = save(control, &self.directory);
        // Nobody else reports it, and a second panic would end the process.
        let _ = match saved {
            Ok(path) => writeln!(
                io::stderr(),
                "revstore: the store and the journal are in {}",
                path.display()
            ),
            Err(error) => writeln!(
                io::stderr(),
                "revstore: the store and the journal cannot be saved in {}: {error}",
                self.directory.display()
            ),
        };
    }
}

/// Writes the files to a new directory, and returns its path.
fn save(control: &Control, directory: &Path) -> io::Result<PathBuf> {
    let name = thread::current().name().unwrap_or("test").replace(
        |char: char| !(char.is_alphanumeric() || matches!(char, '_' | '-' | '.')),
        "_",
    );
    fs::create_dir_all(directory)?;
    let mut number = 1;
    let path = loop {
        let path = directory.join(format!("{name}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => break path,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    };
    let mut journal = BufWriter::new(File::create(path.join("journal.jsonl"))?);
    write_journal(control, &mut journal)?;
    let mut dump = BufWriter::new(File::create(path.join("dump.txt"))?);
    let dumped = control.dump(DumpForm::Text, &mut dump);
    dumped.map_err(io::Error::other)?;
    Ok(path)
}
