//! The names of all plugins, and which of them are on.

use crate::admission::Plugin;
use crate::admission::builtin::{
    DefaultIngressClass, DefaultStorageClass, DefaultTolerationSeconds, LimitRanger,
    NamespaceLifecycle, PersistentVolumeClaimResize, Priority, ResourceQuota,
    StorageObjectInUseProtection, TaintNodesByCondition,
};
use crate::admission::pod_security::PodSecurity;
use crate::admission::webhook::{MutatingWebhooks, ValidatingWebhooks};
use crate::policy::{MutatingPolicies, ValidatingPolicies};

/// A plugin of kube-apiserver 1.36.
struct Known {
    name: &'static str,
    /// Whether kube-apiserver has it on if no flag names it.
    is_default: bool,
    /// Makes the plugin; `None` for one that this server does not have.
    make: Option<fn() -> Box<dyn Plugin>>,
}

const fn absent(name: &'static str) -> Known {
    Known {
        name,
        is_default: false,
        make: None,
    }
}

const fn absent_default(name: &'static str) -> Known {
    Known {
        is_default: true,
        ..absent(name)
    }
}

const fn default(name: &'static str, make: fn() -> Box<dyn Plugin>) -> Known {
    Known {
        name,
        is_default: true,
        make: Some(make),
    }
}

/// All plugins in the order in which they are called.
const PLUGINS: &[Known] = &[
    absent("AlwaysAdmit"),
    absent("NamespaceAutoProvision"),
    default("NamespaceLifecycle", || Box::new(NamespaceLifecycle)),
    absent("NamespaceExists"),
    absent("LimitPodHardAntiAffinityTopology"),
    default("LimitRanger", || Box::new(LimitRanger)),
    absent_default("ServiceAccount"),
    absent("NodeRestriction"),
    default("TaintNodesByCondition", || Box::new(TaintNodesByCondition)),
    absent("AlwaysPullImages"),
    absent("ImagePolicyWebhook"),
    default("PodSecurity", || Box::new(PodSecurity)),
    absent("PodNodeSelector"),
    default("Priority", || Box::new(Priority)),
    default("DefaultTolerationSeconds", || {
        Box::new(DefaultTolerationSeconds)
    }),
    absent("PodTolerationRestriction"),
    absent("EventRateLimit"),
    absent("ExtendedResourceToleration"),
    default("DefaultStorageClass", || Box::new(DefaultStorageClass)),
    default("StorageObjectInUseProtection", || {
        Box::new(StorageObjectInUseProtection)
    }),
    absent_default("PodGroupProtection"),
    absent("OwnerReferencesPermissionEnforcement"),
    default("PersistentVolumeClaimResize", || {
        Box::new(PersistentVolumeClaimResize)
    }),
    absent_default("RuntimeClass"),
    absent_default("CertificateApproval"),
    absent_default("CertificateSigning"),
    absent_default("ClusterTrustBundleAttest"),
    absent_default("CertificateSubjectRestriction"),
    default("DefaultIngressClass", || Box::new(DefaultIngressClass)),
    absent("DenyServiceExternalIPs"),
    absent_default("PodTopologyLabels"),
    absent_default("PodGroupWorkloadExists"),
    absent_default("NodeDeclaredFeatureValidator"),
    absent_default("JobValidation"),
    absent_default("PodResizeValidator"),
    default("MutatingAdmissionPolicy", || {
        Box::new(MutatingPolicies::new())
    }),
    default("MutatingAdmissionWebhook", || {
        Box::<MutatingWebhooks>::default()
    }),
    default("ValidatingAdmissionPolicy", || {
        Box::new(ValidatingPolicies::new())
    }),
    default("ValidatingAdmissionWebhook", || {
        Box::<ValidatingWebhooks>::default()
    }),
    default("ResourceQuota", || Box::new(ResourceQuota)),
    absent("AlwaysDeny"),
];

/// The names of plugins that are turned on or off, beside those that are on by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginNames {
    enabled: Vec<String>,
    disabled: Vec<String>,
}

impl PluginNames {
    /// Checks a list of names to turn on, and one of names to turn off.
    ///
    /// # Errors
    /// A name that kube-apiserver does not know, or one that is in both lists.
    pub fn new(enabled: Vec<String>, disabled: Vec<String>) -> Result<Self, String> {
        let lists = [
            ("enable-admission-plugins", &enabled),
            ("disable-admission-plugins", &disabled),
        ];
        for (flag, names) in lists {
            for name in names {
                if !PLUGINS.iter().any(|plugin| plugin.name == name) {
                    return Err(format!("{flag} plugin \"{name}\" is unknown"));
                }
            }
        }
        let mut both: Vec<&str> = enabled.iter().map(String::as_str).collect();
        both.retain(|name| disabled.iter().any(|disabled| disabled == name));
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            return Err(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            ));
        }
        Ok(Self { enabled, disabled })
    }

    /// Returns the names of plugins that are turned on, and that this server does not have.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &str> {
        let named = |plugin: &&Known| self.enabled.iter().any(|name| name == plugin.name);
        let absent = PLUGINS.iter().filter(|plugin| plugin.make.is_none());
        absent.filter(named).map(|plugin| plugin.name)
    }

    fn is_on(&self, plugin: &Known) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == plugin.name);
        is_in(&self.enabled) || plugin.is_default && !is_in(&self.disabled)
    }

    /// Makes all plugins that are on.
    pub(super) fn make(&self) -> Vec<Box<dyn Plugin>> {
        let on = PLUGINS.iter().filter(|plugin| self.is_on(plugin));
        on.filter_map(|plugin| plugin.make)
            .map(|make| make())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(enabled: &[&str], disabled: &[&str]) -> Result<PluginNames, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        PluginNames::new(owned(enabled), owned(disabled))
    }

    #[test]
    fn unknown_names_and_names_in_both_lists_are_refused() {
        assert_eq!(
            names(&["Foo"], &[]).unwrap_err(),
            "enable-admission-plugins plugin \"Foo\" is unknown"
        );
        assert_eq!(
            names(&[], &["Foo"]).unwrap_err(),
            "disable-admission-plugins plugin \"Foo\" is unknown"
        );
        let both = ["Priority", "LimitRanger"];
        assert_eq!(
            names(&both, &both).unwrap_err(),
            "[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }

    #[test]
    fn a_plugin_is_on_by_default_or_by_name() {
        let is_on = |names: &PluginNames, name: &str| {
            let plugin = PLUGINS.iter().find(|plugin| plugin.name == name).unwrap();
            names.is_on(plugin)
        };
        let none = PluginNames::default();
        assert!(is_on(&none, "NamespaceLifecycle") && !is_on(&none, "AlwaysPullImages"));
        let named = names(&["AlwaysPullImages"], &["NamespaceLifecycle"]).unwrap();
        assert!(!is_on(&named, "NamespaceLifecycle") && is_on(&named, "AlwaysPullImages"));
    }

    #[test]
    fn the_readme_has_all_plugins_in_their_order() {
        let readme = include_str!("../../README.md");
        let (_, section) = readme.split_once("## Admission").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows: Vec<(&str, bool)> = rows
            .filter_map(|row| row.split_once('`'))
            .map(|(name, rest)| (name, rest.contains("| not built")))
            .collect();
        let plugins = PLUGINS.iter();
        let plugins: Vec<(&str, bool)> = plugins
            .map(|plugin| (plugin.name, plugin.make.is_none()))
            .collect();
        assert_eq!(rows, plugins);
    }
}
