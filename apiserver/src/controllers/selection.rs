//! Which controllers run.

use std::fmt;
use std::str::FromStr;

/// The names of all controllers, those of kube-controller-manager.
pub(super) const NAMES: [&str; 8] = [
    GARBAGE_COLLECTOR,
    NAMESPACE,
    SERVICE_ACCOUNT,
    ROOT_CA,
    RESOURCE_QUOTA,
    TTL_AFTER_FINISHED,
    CLUSTER_ROLE_AGGREGATION,
    POLICY_STATUS,
];
pub(super) const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";
pub(super) const NAMESPACE: &str = "namespace-controller";
pub(super) const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
pub(super) const ROOT_CA: &str = "root-ca-certificate-publisher-controller";
pub(super) const RESOURCE_QUOTA: &str = "resourcequota-controller";
pub(super) const TTL_AFTER_FINISHED: &str = "ttl-after-finished-controller";
pub(super) const CLUSTER_ROLE_AGGREGATION: &str = "clusterrole-aggregation-controller";
pub(super) const POLICY_STATUS: &str = "validatingadmissionpolicy-status-controller";

/// The controllers that a server runs, as the flag `--controllers` names them: `none`, or a list in which `*` stands for
/// all, `NAME` switches one on and `-NAME` switches one off. The first word about a controller counts, as in
/// kube-controller-manager.
///
/// ```
/// use revstore_apiserver::Controllers;
/// let some: Controllers = "*,-namespace-controller".parse()?;
/// assert!(some.runs("garbage-collector-controller") && !some.runs("namespace-controller"));
/// assert_eq!("none".parse(), Ok(Controllers::none()));
/// assert!("*,-x".parse::<Controllers>().is_err());
/// # Ok::<(), revstore_apiserver::ControllersError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controllers([bool; NAMES.len()]);

/// The error of a list with a word that names no controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllersError(String);

impl fmt::Display for ControllersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not in the list of known controllers: ", self.0)?;
        f.write_str(&NAMES.join(", "))
    }
}

impl std::error::Error for ControllersError {}

impl Controllers {
    /// Returns the choice of no controller.
    #[must_use]
    pub const fn none() -> Self {
        Self([false; NAMES.len()])
    }

    /// Returns the choice of all controllers.
    #[must_use]
    pub const fn all() -> Self {
        Self([true; NAMES.len()])
    }

    /// Returns whether the controller with a name runs.
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        let mut chosen = NAMES.iter().zip(self.0);
        chosen.any(|(known, runs)| *known == name && runs)
    }
}

impl FromStr for Controllers {
    type Err = ControllersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        if words == ["none"] || words == [""] {
            return Ok(Self::none());
        }
        for word in &words {
            let name = word.strip_prefix('-').unwrap_or(word);
            if *word != "*" && !NAMES.contains(&name) {
                return Err(ControllersError((*word).to_owned()));
            }
        }
        let has_star = words.contains(&"*");
        Ok(Self(NAMES.map(|name| {
            let mut about = words
                .iter()
                .filter(|word| word.strip_prefix('-').unwrap_or(word) == name);
            about.next().map_or(has_star, |word| *word == name)
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_about_a_controller_counts() {
        for (text, namespace, others) in [
            ("none", false, false),
            ("", false, false),
            ("*", true, true),
            ("namespace-controller", true, false),
            ("*, -namespace-controller", false, true),
            ("-namespace-controller,namespace-controller,*", false, true),
            ("-namespace-controller", false, false),
        ] {
            let chosen: Controllers = text.parse().unwrap();
            let found = (chosen.runs(NAMESPACE), chosen.runs(ROOT_CA));
            assert_eq!(found, (namespace, others), "{text}");
        }
        for text in ["none,*", "x", "--namespace-controller", "*,,"] {
            assert!(text.parse::<Controllers>().is_err(), "{text}");
        }
    }
}
