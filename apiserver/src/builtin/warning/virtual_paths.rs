//! Warnings about files of a volume in the place of one another: the last one wins, or the volume fails.

use std::fmt;

use revstore_watch_cache::status::quoted;

use super::{Comparisons, Warnings};
use crate::builtin::field::Field;

/// The place of a file in a volume, and what it comes from, if the volume has several sources.
struct Place<'a> {
    path: &'a str,
    source: String,
}

impl Place<'_> {
    /// Returns whether both are the same file, or one is in the other.
    fn overlaps(&self, other: &Self) -> bool {
        let is_in = |one: &str, two: &str| {
            one.strip_prefix(two)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty()
            && !other.path.is_empty()
            && (is_in(self.path, other.path) || is_in(other.path, self.path))
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(self.path))?;
        if self.source.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.source)
    }
}

/// Warns of overlapping files in a list of volumes.
pub(super) fn check_volumes(volumes: &Field<'_>, warnings: &mut Warnings) {
    for volume in volumes.items() {
        for (kind, title, name) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let source = volume.child(kind);
            let title = titled(title, &source, name);
            Files::new(&volume, &title).add(items(&source, ""), warnings);
        }
        let mut files = Files::new(&volume, "Projected");
        for source in volume.at(&["projected", "sources"]).items() {
            if source.len() == 0 {
                let name = &files.volume;
                warnings.add(format!("volume {name} (Projected) has no sources provided"));
            }
            files.add(projected(&source), warnings);
        }
    }
}

/// Returns the title of a source, with the name of the object if it is one.
fn titled(title: &str, source: &Field<'_>, name: &str) -> String {
    if name.is_empty() {
        return title.to_owned();
    }
    format!("{title} {}", quoted(source.child(name).text()))
}

fn items<'a>(source: &Field<'a>, title: &str) -> Vec<Place<'a>> {
    let place = |item: Field<'a>| Place {
        path: item.child("path").text(),
        source: title.to_owned(),
    };
    source.child("items").items().map(place).collect()
}

/// Returns the files of one of several sources.
fn projected<'a>(source: &Field<'a>) -> Vec<Place<'a>> {
    for (kind, title, name) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "name"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let listed = source.child(kind);
        if listed.child("items").is_set() {
            return items(&listed, &titled(title, &listed, name));
        }
    }
    let one = |place: Field<'a>, source: String| Place {
        path: place.text(),
        source,
    };
    let (token, bundle) = (
        source.child("serviceAccountToken"),
        source.child("clusterTrustBundle"),
    );
    if token.is_set() {
        return vec![one(token.child("path"), "ServiceAccountToken".to_owned())];
    }
    if bundle.is_set() {
        let name = ["name", "signerName"]
            .into_iter()
            .find(|name| bundle.child(name).is_set());
        let title = titled("ClusterTrustBundle", &bundle, name.unwrap_or("name"));
        return vec![one(bundle.child("path"), title)];
    }
    let certificate = source.child("podCertificate");
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let parts = parts.map(|(name, title)| one(certificate.child(name), title.to_owned()));
    parts.into_iter().collect()
}

/// The files of a volume that are known so far.
struct Files<'a> {
    /// The name of the volume, in quotes.
    volume: String,
    title: &'a str,
    seen: Vec<Place<'a>>,
    comparisons: Comparisons,
}

impl<'a> Files<'a> {
    fn new(volume: &Field<'_>, title: &'a str) -> Self {
        Self {
            volume: quoted(volume.child("name").text()),
            title,
            seen: Vec::new(),
            comparisons: Comparisons::new(),
        }
    }

    /// Adds files, and warns of those that overlap with earlier ones.
    fn add(&mut self, places: Vec<Place<'a>>, warnings: &mut Warnings) {
        let (volume, title) = (&self.volume, self.title);
        for mut place in places {
            place.path = place.path.trim_end_matches('/');
            if !self.comparisons.may_make(self.seen.len()) {
                return;
            }
            for other in self.seen.iter().filter(|other| place.overlaps(other)) {
                warnings.add(format!(
                    "volume {volume} ({title}): overlapping paths: {place} with {other}"
                ));
            }
            self.seen.push(place);
        }
    }
}
