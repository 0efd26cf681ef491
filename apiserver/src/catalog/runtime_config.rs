//! Which built-in versions and resources are served.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use revstore_kinds as kinds;

/// The built-in versions and resources that are served (`--runtime-config`): by default the stable versions.
///
/// ```
/// use revstore_apiserver::RuntimeConfig;
/// let config: RuntimeConfig = "api/beta=true,apps/v1=false".parse()?;
/// assert!(config.warnings().is_empty());
/// assert!("apps/v9=true".parse::<RuntimeConfig>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Versions whose state is another one than by default.
    versions: BTreeMap<(String, String), bool>,
    /// Resources whose state is another one than that of their version.
    resources: BTreeMap<(String, String, String), bool>,
    warnings: Vec<String>,
}

/// The keys that stand for many versions, in the order in which they count.
const MATCHERS: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// A group of kube-apiserver that has alpha versions only.
const ALPHA_GROUP: &str = "internal.apiserver.k8s.io";

/// The maturity of a version, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Stable,
    Beta,
    Alpha,
}

impl Stage {
    fn of(version: &str) -> Option<Self> {
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = version.strip_prefix('v')?;
        for (word, stage) in [("beta", Self::Beta), ("alpha", Self::Alpha)] {
            if let Some((major, minor)) = number.split_once(word) {
                return (is_number(major) && is_number(minor)).then_some(stage);
            }
        }
        is_number(number).then_some(Self::Stable)
    }

    /// Returns whether a key stands for versions of this stage.
    fn matches(self, key: &str) -> bool {
        match key {
            "api/all" => true,
            "api/ga" => self == Self::Stable,
            "api/beta" => self == Self::Beta,
            _ => self == Self::Alpha,
        }
    }
}

impl RuntimeConfig {
    /// Returns what in the configuration has no effect here.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns whether a resource is served.
    pub(crate) fn serves(&self, resource: &kinds::Resource) -> bool {
        let (group, version) = (resource.group(), resource.version());
        let key = (
            group.to_owned(),
            version.to_owned(),
            resource.plural().to_owned(),
        );
        if let Some(is_on) = self.resources.get(&key) {
            return *is_on;
        }
        let (group, version, _) = key;
        let is_on = self.versions.get(&(group, version)).copied();
        is_on.unwrap_or(resource.on_by_default())
    }

    /// Returns the resources of a version that are served.
    pub(crate) fn resources<'a>(
        &'a self,
        version: &'a kinds::Version,
    ) -> impl Iterator<Item = &'a kinds::Resource> {
        let resources = version.resources();
        resources.filter(|resource| self.serves(resource))
    }

    /// Returns a text that differs for configurations that serve something else; empty by default.
    pub(crate) fn state(&self) -> String {
        if self.versions.is_empty() && self.resources.is_empty() {
            return String::new();
        }
        format!("{:?}{:?}", self.versions, self.resources)
    }

    fn set_matching(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_on = match value {
            "true" => true,
            "false" => false,
            _ => return Err(format!("invalid value {key}={value}")),
        };
        if key == "api/alpha" && is_on {
            let warning =
                "--runtime-config=api/alpha=true has no effect: this server has no alpha versions";
            self.warnings.push(warning.to_owned());
        }
        let versions = kinds::groups().iter().flat_map(kinds::Group::versions);
        for version in versions {
            // The versions of definitions and API services belong to other servers of kube-apiserver, which have the same keys.
            if Stage::of(version.name()).is_some_and(|stage| stage.matches(key)) {
                let names = (version.group().to_owned(), version.name().to_owned());
                self.versions.insert(names, is_on);
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let tokens: Vec<&str> = key.split('/').collect();
        let (group, version, plural) = match tokens.as_slice() {
            [group, version] => (*group, *version, None),
            [group, version, plural] => (*group, *version, Some(*plural)),
            _ => return Err(format!("runtime-config invalid key {key}")),
        };
        let shown = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let known = kinds::groups().iter().find(|known| known.name() == group);
        if known.is_none() && group != ALPHA_GROUP {
            return Err(format!("unknown api groups {shown}"));
        }
        let is_on = boolean(value)
            .ok_or_else(|| format!("invalid value of {key}: {value}, err: it is not a boolean"))?;
        let versions = known.map(kinds::Group::versions).unwrap_or_default();
        let Some(found) = versions.iter().find(|known| known.name() == version) else {
            // kube-apiserver has alpha versions, and knows versions that it serves no more.
            let is_other = matches!(Stage::of(version), Some(Stage::Beta | Stage::Alpha));
            if !is_other {
                return Err(format!(
                    "group version {shown} that has not been registered"
                ));
            }
            if is_on {
                self.warnings.push(format!(
                    "--runtime-config={key} has no effect: this server does not have the version"
                ));
            }
            return Ok(());
        };
        let (group, version) = (group.to_owned(), version.to_owned());
        let Some(plural) = plural else {
            self.versions.insert((group, version), is_on);
            return Ok(());
        };
        if plural != plural.to_lowercase() {
            return Err(format!(
                "invalid key {key}: group/version/resource and resource is always lowercase plural, not {plural:?}"
            ));
        }
        if found.resource(plural).is_none() {
            self.warnings.push(format!(
                "--runtime-config={key} has no effect: the version does not have the resource"
            ));
        }
        self.resources
            .insert((group, version, plural.to_owned()), is_on);
        Ok(())
    }

    /// Removes what is as by default.
    fn simplify(&mut self) {
        let versions = kinds::groups().iter().flat_map(kinds::Group::versions);
        let on: BTreeSet<_> = versions
            .filter(|version| version.on_by_default())
            .map(|version| (version.group().to_owned(), version.name().to_owned()))
            .collect();
        self.versions
            .retain(|version, is_on| on.contains(version) != *is_on);
    }
}

impl FromStr for RuntimeConfig {
    type Err = String;

    /// Parses pairs `KEY=VALUE`, comma-separated. A key is `api/all`, `api/ga`, `api/beta`, `GROUP/VERSION`, `/v1` for the
    /// core group, or `GROUP/VERSION/RESOURCE`; those that name less count first.
    ///
    /// # Errors
    /// A key that kube-apiserver does not know, either, or a value that is no boolean.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut pairs = BTreeMap::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.insert(key.trim(), value.trim());
        }
        if pairs.len() == 1 && pairs.get("api/all") == Some(&"false") {
            return Err("invalid runtime-config with only api/all=false".to_owned());
        }
        let mut config = Self::default();
        for key in MATCHERS {
            if let Some(value) = pairs.remove(key) {
                config.set_matching(key, value)?;
            }
        }
        for (key, value) in pairs {
            config.set(key, value)?;
        }
        config.simplify();
        Ok(config)
    }
}

/// Returns a boolean as Go's `ParseBool` reads it; an empty text is `true`.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(text: &str, group: &str, version: &str, plural: &str) -> bool {
        let config: RuntimeConfig = text.parse().unwrap();
        let version = kinds::version(group, version).unwrap();
        config.serves(version.resource(plural).unwrap())
    }

    #[test]
    fn keys_that_name_more_count_last() {
        let slices = |text| {
            ["v1", "v1beta2", "v1beta1"]
                .map(|version| serves(text, "resource.k8s.io", version, "resourceslices"))
        };
        for (text, expected) in [
            ("", [true, false, false]),
            ("api/beta=true", [true, true, true]),
            ("api/all=true", [true, true, true]),
            ("api/ga=false", [false, false, false]),
            (
                "api/beta=true,resource.k8s.io/v1beta1=false",
                [true, true, false],
            ),
            (
                "resource.k8s.io/v1beta1/resourceslices=true",
                [true, false, true],
            ),
            (
                "resource.k8s.io/v1beta1/deviceclasses=true",
                [true, false, false],
            ),
            (
                "resource.k8s.io/v1beta1,resource.k8s.io/v1=0",
                [false, false, true],
            ),
            (
                "api/all=false,resource.k8s.io/v1=true",
                [true, false, false],
            ),
        ] {
            assert_eq!(slices(text), expected, "{text}");
        }
        assert!(!serves("/v1/pods=false", "", "v1", "pods"));
    }

    #[test]
    fn unknown_keys_are_refused_or_have_no_effect() {
        for (text, expected) in [
            ("v1=true", "runtime-config invalid key v1"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            ("nope.k8s.io/v1=true", "unknown api groups nope.k8s.io/v1"),
            ("api/legacy=true", "unknown api groups api/legacy"),
            (
                "apps/v9=true",
                "group version apps/v9 that has not been registered",
            ),
            ("api/beta=yes", "invalid value api/beta=yes"),
            (
                "api/all=false",
                "invalid runtime-config with only api/all=false",
            ),
            (
                "apps/v1=yes",
                "invalid value of apps/v1: yes, err: it is not a boolean",
            ),
            (
                "apps/v1/Deployments=true",
                "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \
                 \"Deployments\"",
            ),
        ] {
            assert_eq!(text.parse::<RuntimeConfig>(), Err(expected.to_owned()));
        }
        for text in [
            "api/alpha=true",
            "apps/v1beta1=true",
            "storage.k8s.io/v1alpha1=true",
            "internal.apiserver.k8s.io/v1alpha1=true",
            "apps/v1/nopes=true",
        ] {
            let config: RuntimeConfig = text.parse().unwrap();
            assert_eq!(config.warnings().len(), 1, "{text}");
        }
    }
}
