//! The names of all plugins, and which of them are on.

use crate::admission::Plugin;
use crate::admission::builtin::{
    DefaultIngressClass, DefaultStorageClass, LimitRanger, NamespaceLifecycle,
    PersistentVolumeClaimResize, ResourceQuota, StorageObjectInUseProtection,
    TaintNodesByCondition,
};
use crate::admission::certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
};
use crate::admission::optional::{
    AlwaysAdmit, AlwaysDeny, AlwaysPullImages, DenyServiceExternalIPs, ExtendedResourceToleration,
    LimitPodHardAntiAffinityTopology, NamespaceAutoProvision, NamespaceExists,
    OwnerReferencesPermissionEnforcement, PodNodeSelector, PodTolerationRestriction,
};
use crate::admission::pod_security::PodSecurity;
use crate::admission::pods::{
    DefaultTolerationSeconds, NodeDeclaredFeatureValidator, PodResizeValidator, PodTopologyLabels,
    Priority, RuntimeClass, ServiceAccount, TolerationSeconds,
};
use crate::admission::webhook::{MutatingWebhooks, ValidatingWebhooks};
use crate::policy::{MutatingPolicies, ValidatingPolicies};

/// A plugin of kube-apiserver 1.36.
struct Known {
    name: &'static str,
    /// When it is on if no flag names it.
    default: Default,
    /// Makes the plugin; `None` for one that this server does not have.
    make: Option<fn(TolerationSeconds) -> Box<dyn Plugin>>,
}

/// When a plugin is on that no flag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Default {
    Off,
    On,
    /// In the place of kube-apiserver, where it is on; see [`PluginNames::in_place`].
    InPlace,
}

const fn absent(name: &'static str) -> Known {
    Known {
        name,
        default: Default::Off,
        make: None,
    }
}

const fn absent_default(name: &'static str) -> Known {
    Known {
        default: Default::On,
        ..absent(name)
    }
}

const fn optional(name: &'static str, make: fn(TolerationSeconds) -> Box<dyn Plugin>) -> Known {
    Known {
        default: Default::Off,
        ..default(name, make)
    }
}

const fn default(name: &'static str, make: fn(TolerationSeconds) -> Box<dyn Plugin>) -> Known {
    Known {
        name,
        default: Default::On,
        make: Some(make),
    }
}

/// All plugins in the order in which they are called.
const PLUGINS: &[Known] = &[
    optional("AlwaysAdmit", |_| Box::new(AlwaysAdmit)),
    optional("NamespaceAutoProvision", |_| {
        Box::new(NamespaceAutoProvision)
    }),
    default("NamespaceLifecycle", |_| Box::new(NamespaceLifecycle)),
    optional("NamespaceExists", |_| Box::new(NamespaceExists)),
    optional("LimitPodHardAntiAffinityTopology", |_| {
        Box::new(LimitPodHardAntiAffinityTopology)
    }),
    default("LimitRanger", |_| Box::new(LimitRanger)),
    Known {
        default: Default::InPlace,
        ..default("ServiceAccount", |_| Box::new(ServiceAccount))
    },
    absent("NodeRestriction"),
    default("TaintNodesByCondition", |_| Box::new(TaintNodesByCondition)),
    optional("AlwaysPullImages", |_| Box::new(AlwaysPullImages)),
    absent("ImagePolicyWebhook"),
    default("PodSecurity", |_| Box::new(PodSecurity)),
    optional("PodNodeSelector", |_| Box::new(PodNodeSelector)),
    default("Priority", |_| Box::new(Priority)),
    default("DefaultTolerationSeconds", |seconds| {
        Box::new(DefaultTolerationSeconds(seconds))
    }),
    optional("PodTolerationRestriction", |_| {
        Box::new(PodTolerationRestriction)
    }),
    absent("EventRateLimit"),
    optional("ExtendedResourceToleration", |_| {
        Box::new(ExtendedResourceToleration)
    }),
    default("DefaultStorageClass", |_| Box::new(DefaultStorageClass)),
    default("StorageObjectInUseProtection", |_| {
        Box::new(StorageObjectInUseProtection)
    }),
    absent_default("PodGroupProtection"),
    optional("OwnerReferencesPermissionEnforcement", |_| {
        Box::new(OwnerReferencesPermissionEnforcement)
    }),
    default("PersistentVolumeClaimResize", |_| {
        Box::new(PersistentVolumeClaimResize)
    }),
    default("RuntimeClass", |_| Box::new(RuntimeClass)),
    default("CertificateApproval", |_| Box::new(CertificateApproval)),
    default("CertificateSigning", |_| Box::new(CertificateSigning)),
    absent_default("ClusterTrustBundleAttest"),
    default("CertificateSubjectRestriction", |_| {
        Box::new(CertificateSubjectRestriction)
    }),
    default("DefaultIngressClass", |_| Box::new(DefaultIngressClass)),
    optional("DenyServiceExternalIPs", |_| {
        Box::new(DenyServiceExternalIPs)
    }),
    default("PodTopologyLabels", |_| Box::new(PodTopologyLabels)),
    absent_default("PodGroupWorkloadExists"),
    default("NodeDeclaredFeatureValidator", |_| {
        Box::new(NodeDeclaredFeatureValidator)
    }),
    absent_default("JobValidation"),
    default("PodResizeValidator", |_| Box::new(PodResizeValidator)),
    default("MutatingAdmissionPolicy", |_| {
        Box::new(MutatingPolicies::new())
    }),
    default("MutatingAdmissionWebhook", |_| {
        Box::<MutatingWebhooks>::default()
    }),
    default("ValidatingAdmissionPolicy", |_| {
        Box::new(ValidatingPolicies::new())
    }),
    default("ValidatingAdmissionWebhook", |_| {
        Box::<ValidatingWebhooks>::default()
    }),
    default("ResourceQuota", |_| Box::new(ResourceQuota)),
    optional("AlwaysDeny", |_| Box::new(AlwaysDeny)),
];

/// The names of plugins that are turned on or off, beside those that are on by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginNames {
    enabled: Vec<String>,
    disabled: Vec<String>,
    is_in_place: bool,
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
        Ok(Self {
            enabled,
            disabled,
            is_in_place: false,
        })
    }

    /// Turns on by default what only a server in the place of kube-apiserver has on: `ServiceAccount`, which refuses the
    /// pods of namespaces without service accounts, as those are without a controller.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, PluginNames};
    /// let plugins = PluginNames::default().in_place();
    /// let server = ApiServer::builder().admission_plugins(plugins).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.is_in_place = true;
        self
    }

    /// Returns the names of plugins that are turned on, and that this server does not have.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &str> {
        let named = |plugin: &&Known| self.enabled.iter().any(|name| name == plugin.name);
        let absent = PLUGINS.iter().filter(|plugin| plugin.make.is_none());
        absent.filter(named).map(|plugin| plugin.name)
    }

    fn is_on(&self, plugin: &Known) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == plugin.name);
        let is_default = match plugin.default {
            Default::Off => false,
            Default::On => true,
            Default::InPlace => self.is_in_place,
        };
        is_in(&self.enabled) || is_default && !is_in(&self.disabled)
    }

    /// Makes all plugins that are on, with their names.
    pub(super) fn make(&self, seconds: TolerationSeconds) -> Vec<(&'static str, Box<dyn Plugin>)> {
        let on = PLUGINS.iter().filter(|plugin| self.is_on(plugin));
        on.filter_map(|plugin| Some((plugin.name, plugin.make?(seconds))))
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
        let account = "ServiceAccount";
        assert!(!is_on(&none, account) && is_on(&none.in_place(), account));
        assert!(is_on(&names(&[account], &[]).unwrap(), account));
        let off = names(&[], &[account]).unwrap().in_place();
        assert!(!is_on(&off, account));
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
