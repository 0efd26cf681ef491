//! A log file that is replaced when it has reached a size.

use std::{
    env,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use tz::{LocalTimeType, TimeZone};

use super::format::timestamp;

/// The time after a failed replacement before the next attempt. Until then the old file grows.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The end of the names of compressed files.
const COMPRESSED: &str = ".gz";

/// When a log file is replaced, and which of the old files are kept. The rules and names are those of the Go library
/// lumberjack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRotation {
    /// The size above which the file is renamed to `name-<time>.ext`, and a new one is begun. Default 100 MiB.
    pub bytes_max: u64,
    /// The age from which on old files are removed, by the time in their names. Default `None`: never.
    pub age_max: Option<Duration>,
    /// The number of old files to keep. Default `None`: all.
    pub backups_max: Option<usize>,
    /// Whether old files are compressed with gzip. Default `false`.
    pub compress: bool,
    /// Whether the times in the names of old files are those of the local time zone: of the environment variable `TZ`,
    /// or of `/etc/localtime`. Default `false`: UTC. Ages are computed as if they were in UTC.
    pub local_time: bool,
}

impl Default for LogRotation {
    fn default() -> Self {
        Self {
            bytes_max: 100 << 20,
            age_max: None,
            backups_max: None,
            compress: false,
            local_time: false,
        }
    }
}

impl LogRotation {
    /// Sets [`bytes_max`](Self::bytes_max).
    #[must_use]
    pub fn bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    /// Sets [`age_max`](Self::age_max).
    #[must_use]
    pub fn age_max(self, age_max: Option<Duration>) -> Self {
        Self { age_max, ..self }
    }

    /// Sets [`backups_max`](Self::backups_max).
    #[must_use]
    pub fn backups_max(self, backups_max: Option<usize>) -> Self {
        Self {
            backups_max,
            ..self
        }
    }

    /// Sets [`compress`](Self::compress).
    #[must_use]
    pub fn compress(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Sets [`local_time`](Self::local_time).
    #[must_use]
    pub fn local_time(self, local_time: bool) -> Self {
        Self { local_time, ..self }
    }
}

/// A log file with its rotation.
#[derive(Debug)]
pub(super) struct RotatedFile {
    path: PathBuf,
    rotation: LogRotation,
    /// The zone of the times in the names of old files.
    zone: TimeZone,
    /// A leaf lock, held while a line is written.
    current: Mutex<Current>,
    /// Whether a thread removes or compresses old files.
    is_cleaning: Arc<AtomicBool>,
}

/// The file that is written.
#[derive(Debug)]
struct Current {
    file: File,
    bytes: u64,
    /// The time of the last replacement that failed.
    failed: Option<Instant>,
}

impl RotatedFile {
    pub(super) fn open(path: &Path, rotation: LogRotation) -> io::Result<Self> {
        let zone = if rotation.local_time {
            local_zone()
        } else {
            TimeZone::utc()
        };
        Self::open_in_zone(path, rotation, zone)
    }

    fn open_in_zone(path: &Path, rotation: LogRotation, zone: TimeZone) -> io::Result<Self> {
        let file = open(path, None)?;
        let this = Self {
            path: path.to_owned(),
            rotation,
            zone,
            current: Mutex::new(Current {
                bytes: file.metadata()?.len(),
                file,
                failed: None,
            }),
            is_cleaning: Arc::default(),
        };
        this.clean();
        Ok(this)
    }

    /// Writes a line. If the file cannot be replaced, for example because its directory is not writable, the line is
    /// written to the old one.
    pub(super) fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut current = self.current.lock();
        let bytes = line.len() as u64;
        let is_full =
            current.bytes > 0 && current.bytes.saturating_add(bytes) > self.rotation.bytes_max;
        let may_try = current
            .failed
            .is_none_or(|failed| failed.elapsed() >= RETRY_DELAY);
        if is_full && may_try {
            match self.replace(&current.file) {
                Ok(file) => {
                    *current = Current {
                        file,
                        bytes: 0,
                        failed: None,
                    };
                    self.clean();
                }
                Err(_) => current.failed = Some(Instant::now()),
            }
        }
        // A line that was written in part is in the file, too.
        current.bytes = current.bytes.saturating_add(bytes);
        (&current.file).write_all(line)
    }

    /// Renames the file and creates a new one with the same permissions.
    fn replace(&self, old: &File) -> io::Result<File> {
        let permissions = old.metadata()?.permissions();
        match fs::rename(&self.path, self.backup_path()) {
            Ok(()) => {}
            // Somebody has removed or renamed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        open(&self.path, Some(permissions))
    }

    /// Returns an unused name for the old file.
    fn backup_path(&self) -> PathBuf {
        let mut now = SystemTime::now();
        loop {
            let time = name_time(now, &self.zone);
            let (stem, extension) = self.name_parts();
            let path = self
                .path
                .with_file_name(format!("{stem}-{time}{extension}"));
            let compressed = PathBuf::from(format!("{}{COMPRESSED}", path.display()));
            if !path.exists() && !compressed.exists() {
                return path;
            }
            now += Duration::from_millis(1);
        }
    }

    /// Returns the name of the file without and with the dot of its extension.
    fn name_parts(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = self
            .path
            .extension()
            .map(|it| format!(".{}", it.to_string_lossy()));
        (text(self.path.file_stem()), extension.unwrap_or_default())
    }

    /// Removes and compresses old files on a thread, because this may take long.
    fn clean(&self) {
        let LogRotation {
            age_max,
            backups_max,
            compress,
            ..
        } = self.rotation;
        if age_max.is_none() && backups_max.is_none() && !compress {
            return;
        }
        // AcqRel: pairs with the Release at the end of the thread. One that runs has listed the files already or will
        // not see the newest one, which the next replacement cleans up.
        if self.is_cleaning.swap(true, Ordering::AcqRel) {
            return;
        }
        let (is_cleaning, rotation) = (self.is_cleaning.clone(), self.rotation);
        let (path, parts) = (self.path.clone(), self.name_parts());
        let cleaner = thread::Builder::new().name("revstore-log".to_owned());
        let spawned = cleaner.spawn(move || {
            // A failure cannot be reported in the log. The next replacement tries again.
            let _ = clean(&path, &parts, rotation);
            is_cleaning.store(false, Ordering::Release);
        });
        if spawned.is_err() {
            self.is_cleaning.store(false, Ordering::Release);
        }
    }
}

/// The length of the time in the name of an old file.
const TIME_LENGTH: usize = "2026-01-31T12-00-00.000".len();

/// Returns the zone of the local time as Go finds it: that of the environment variable `TZ`, of `/etc/localtime` if it is
/// not set, and UTC if it is empty or there is no such zone.
fn local_zone() -> TimeZone {
    match env::var("TZ") {
        Ok(name) if name.is_empty() => Ok(TimeZone::utc()),
        Ok(name) => TimeZone::from_posix_tz(&name),
        Err(_) => TimeZone::local(),
    }
    .unwrap_or_else(|_| TimeZone::utc())
}

/// Returns a time as in the names of old files, in a zone: `2026-01-31T12-00-00.000`.
fn name_time(time: SystemTime, zone: &TimeZone) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.ok().and_then(|it| i64::try_from(it.as_secs()).ok());
    let local = seconds.and_then(|seconds| zone.find_local_time_type(seconds).ok());
    let offset = local.map_or(0, LocalTimeType::ut_offset);
    let ahead = Duration::from_secs(offset.unsigned_abs().into());
    let shifted = if offset < 0 {
        time.checked_sub(ahead)
    } else {
        time.checked_add(ahead)
    };
    // `2026-01-31T12:00:00.000000Z` becomes `2026-01-31T12-00-00.000`.
    let mut text = timestamp(shifted.unwrap_or(time)).replace(':', "-");
    text.truncate(TIME_LENGTH);
    text
}

/// Opens a file for appending. A new one gets `permissions`, or as in etcd can be read by its owner only.
fn open(path: &Path, permissions: Option<Permissions>) -> io::Result<File> {
    let mode = permissions.map_or(0o600, |permissions| permissions.mode() & 0o777);
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(mode).open(path)
}

/// Removes the old files beyond the limits and compresses the others.
fn clean(
    path: &Path,
    (stem, extension): &(String, String),
    rotation: LogRotation,
) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let oldest = rotation
        .age_max
        .and_then(|age| SystemTime::now().checked_sub(age));
    let oldest = oldest.map(|time| name_time(time, &TimeZone::utc()));
    let mut backups = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let uncompressed = name.strip_suffix(COMPRESSED).unwrap_or(&name);
        let time = uncompressed.strip_prefix(stem.as_str());
        let time = time.and_then(|rest| rest.strip_prefix('-')?.strip_suffix(extension.as_str()));
        if let Some(time) = time.filter(|time| is_time(time)) {
            backups.push((time.to_owned(), entry.path(), name.ends_with(COMPRESSED)));
        }
    }
    // The newest first.
    backups.sort_unstable_by(|a, b| b.cmp(a));
    for (index, (time, path, is_compressed)) in backups.into_iter().enumerate() {
        let is_beyond = rotation.backups_max.is_some_and(|count| index >= count);
        let is_old = oldest.as_ref().is_some_and(|oldest| time < *oldest);
        if is_beyond || is_old {
            fs::remove_file(path)?;
        } else if rotation.compress && !is_compressed {
            compress(&path)?;
        }
    }
    Ok(())
}

/// Returns whether a text has the form of a time in the name of an old file.
fn is_time(text: &str) -> bool {
    let form = "0000-00-00T00-00-00.000";
    text.len() == form.len()
        && text
            .bytes()
            .zip(form.bytes())
            .all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
}

/// Replaces a file by a compressed one.
fn compress(path: &Path) -> io::Result<()> {
    let target = PathBuf::from(format!("{}{COMPRESSED}", path.display()));
    let mut source = File::open(path)?;
    let permissions = source.metadata()?.permissions();
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    let file = options.mode(permissions.mode() & 0o777).open(&target)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    let written = io::copy(&mut source, &mut encoder).and_then(|_| encoder.finish().map(drop));
    if let Err(error) = written {
        // A part of a file is of no use. The old file stays.
        let _ = fs::remove_file(&target);
        return Err(error);
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const LINE: &[u8] = b"123456789\n";

    /// Returns the names of the files in a folder, without the log itself.
    fn backups(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "a.log").collect();
        names.sort_unstable();
        names
    }

    fn wait_for_cleaning(file: &RotatedFile) {
        while file.is_cleaning.load(Ordering::Acquire) {
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn names_have_the_time_of_the_zone() {
        // The 31st of January and the 1st of July 2026, 23:30:00.123 UTC.
        let winter = SystemTime::UNIX_EPOCH + Duration::from_millis(1_769_902_200_123);
        let summer = SystemTime::UNIX_EPOCH + Duration::from_millis(1_782_948_600_123);
        let check = |zone: &str, time, expected: &str| {
            let zone = TimeZone::from_posix_tz(zone).unwrap();
            assert_eq!(name_time(time, &zone), expected);
        };
        check("UTC0", winter, "2026-01-31T23-30-00.123");
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(berlin, winter, "2026-02-01T00-30-00.123");
        check(berlin, summer, "2026-07-02T01-30-00.123");
        check("NST3:30", winter, "2026-01-31T20-00-00.123");
    }

    #[test]
    fn an_old_file_is_named_by_the_time_of_the_zone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let (rotation, far) = (LogRotation::default().bytes_max(5), "FAR-24:00");
        let zone = TimeZone::from_posix_tz(far).unwrap();
        let before = name_time(
            SystemTime::now() + Duration::from_secs(86_400),
            &TimeZone::utc(),
        );
        let file = RotatedFile::open_in_zone(&path, rotation, zone).unwrap();
        file.write(LINE).unwrap();
        file.write(LINE).unwrap();
        let names = backups(folder.path());
        assert!(names[0] >= format!("a-{before}.log"), "{names:?}, {before}");
    }

    #[test]
    fn a_full_file_is_renamed_and_the_newest_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        fs::write(folder.path().join("a-other.log"), "kept").unwrap();
        let rotation = LogRotation::default().bytes_max(25).backups_max(Some(2));
        let file = RotatedFile::open(&path, rotation).unwrap();
        for _ in 0..11 {
            file.write(LINE).unwrap();
            wait_for_cleaning(&file);
        }
        // Two lines for each file.
        assert_eq!(fs::read(&path).unwrap(), LINE);
        let names = backups(folder.path());
        assert_eq!(names.len(), 3, "{names:?}");
        let time = names[0]
            .strip_prefix("a-")
            .unwrap()
            .strip_suffix(".log")
            .unwrap();
        assert!(is_time(time), "{names:?}");
        let old = fs::read(folder.path().join(&names[0])).unwrap();
        assert_eq!(old, LINE.repeat(2));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_longer_line_is_written_to_a_file_of_its_own_and_a_restart_continues_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let rotation = LogRotation::default().bytes_max(15);
        RotatedFile::open(&path, rotation)
            .unwrap()
            .write(LINE)
            .unwrap();
        let file = RotatedFile::open(&path, rotation).unwrap();
        file.write(&[b'x'; 100]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [b'x'; 100]);
        file.write(LINE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LINE);
        assert_eq!(backups(folder.path()).len(), 2);
    }

    #[test]
    fn a_file_that_is_removed_or_renamed_is_created_again_at_the_next_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let rotation = LogRotation::default().bytes_max(25);
        let file = RotatedFile::open(&path, rotation).unwrap();
        file.write(LINE).unwrap();
        fs::remove_file(&path).unwrap();
        for _ in 0..3 {
            file.write(LINE).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), LINE.repeat(2));
    }

    #[test]
    fn a_folder_that_is_removed_does_not_stop_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        fs::create_dir(&logs).unwrap();
        let path = logs.join("a.log");
        let rotation = LogRotation::default().bytes_max(15).compress(true);
        let file = RotatedFile::open(&path, rotation).unwrap();
        fs::remove_dir_all(&logs).unwrap();
        for _ in 0..10 {
            file.write(LINE).unwrap();
        }
        fs::create_dir(&logs).unwrap();
        file.current.lock().failed = None;
        file.write(LINE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LINE);
        wait_for_cleaning(&file);
    }

    #[test]
    fn a_full_disk_does_not_stop_the_log() {
        let rotation = LogRotation::default().bytes_max(15);
        // The device exists on Linux only.
        let Ok(file) = RotatedFile::open(Path::new("/dev/full"), rotation) else {
            return;
        };
        file.write(LINE).unwrap_err();
    }

    #[test]
    fn old_files_are_compressed_and_removed_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        for name in [
            "a-2000-01-01T00-00-00.000.log",
            "a-2000-01-01T00-00-00.000.log.gz",
        ] {
            fs::write(folder.path().join(name), "old").unwrap();
        }
        let day = Duration::from_secs(86_400);
        let rotation = LogRotation::default()
            .bytes_max(15)
            .age_max(Some(day))
            .compress(true);
        let file = RotatedFile::open(&path, rotation).unwrap();
        wait_for_cleaning(&file);
        file.write(LINE).unwrap();
        file.write(LINE).unwrap();
        wait_for_cleaning(&file);
        let names = backups(folder.path());
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].ends_with(".log.gz"), "{names:?}");
        let compressed = File::open(folder.path().join(&names[0])).unwrap();
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(compressed)
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text, LINE);
    }
}
