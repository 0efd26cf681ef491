//! The options of a builder that have flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ApiServerBuilder;
use crate::admission::{PluginNames, TolerationSeconds};
use crate::allocation::ServiceRanges;
use crate::auth::{AuthorizationMode, ServiceAccountOptions, User};
use crate::catalog::RuntimeConfig;
use crate::components::Components;
use crate::config::Chance;
use crate::controllers::Controllers;
use crate::webhook::WebhookRoute;

/// Options that have flags. [`config`](Self::config) sets all of them at once, so it comes first.
impl ApiServerBuilder {
    /// Sets the address for plain HTTP, which must be one of the loopback interface, or `None` for HTTPS only.
    pub fn http(mut self, address: impl Into<Option<SocketAddr>>) -> Self {
        self.config.http = address.into();
        self
    }

    /// Sets the address for HTTPS, or `None` for plain HTTP only.
    pub fn https(mut self, address: impl Into<Option<SocketAddr>>) -> Self {
        self.config.https = address.into();
        self
    }

    /// Sets which requests are allowed. Requests without a token over plain HTTP are those of an administrator in
    /// each mode.
    pub fn authorization_mode(self, mode: AuthorizationMode) -> Self {
        self.authorization_modes([mode])
    }

    /// Sets several authorizers, which are asked in their order until one allows the request. Without one no request is
    /// allowed but those of administrators.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// use revstore_apiserver::auth::AuthorizationMode;
    /// let modes = [AuthorizationMode::Node, AuthorizationMode::Rbac];
    /// let server = ApiServer::builder().authorization_modes(modes).start()?;
    /// # let _ = server;
    /// # Ok::<(), revstore_apiserver::StartError>(())
    /// ```
    pub fn authorization_modes(
        mut self,
        modes: impl IntoIterator<Item = AuthorizationMode>,
    ) -> Self {
        self.config.authorization_modes = modes.into_iter().collect();
        self
    }

    /// Sets which built-in versions and resources are served: by default the stable versions.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// let server = ApiServer::builder().runtime_config("api/beta=true".parse()?).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runtime_config(mut self, config: RuntimeConfig) -> Self {
        self.config.runtime_config = config;
        self
    }

    /// Sets which admission plugins are on.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, PluginNames};
    /// let plugins = PluginNames::new(vec!["ServiceAccount".to_owned()], vec!["Priority".to_owned()])?;
    /// let server = ApiServer::builder().admission_plugins(plugins).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admission_plugins(mut self, plugins: PluginNames) -> Self {
        self.config.admission_plugins = plugins;
        self
    }

    /// Sets for how long pods that say nothing about it stay on nodes with a problem.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, TolerationSeconds};
    /// let seconds = TolerationSeconds { not_ready: 5, unreachable: 10 };
    /// let server = ApiServer::builder().toleration_seconds(seconds).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn toleration_seconds(mut self, seconds: TolerationSeconds) -> Self {
        self.config.toleration_seconds = seconds;
        self
    }

    /// Sets the keys, issuers and audiences of the tokens of service accounts.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// use revstore_apiserver::auth::ServiceAccountOptions;
    /// let mut options = ServiceAccountOptions::default();
    /// options.issuers = vec!["https://issuer.example.com".to_owned()];
    /// let server = ApiServer::builder().service_accounts(options).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn service_accounts(mut self, options: ServiceAccountOptions) -> Self {
        self.config.service_accounts = options;
        self
    }

    /// Adds a user who is known by a bearer token, as a line of `--token-auth-file` does.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// use revstore_apiserver::auth::{AuthorizationMode, User};
    /// let server = ApiServer::builder()
    ///     .authorization_mode(AuthorizationMode::Rbac)
    ///     .user("secret", User::new("ann", ["devs"]))
    ///     .start()?;
    /// # let _ = server;
    /// # Ok::<(), revstore_apiserver::StartError>(())
    /// ```
    pub fn user(mut self, token: impl Into<String>, user: User) -> Self {
        self.users.push((token.into(), user));
        self
    }

    /// Sets the file with the authorities of client certificates. The common name is the user, the organizations are
    /// the groups.
    pub fn client_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.client_ca_file = Some(path.into());
        self
    }

    /// Sets the ranges from which services get cluster IPs and ports of the nodes.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, ServiceRanges};
    /// let ranges = ServiceRanges {
    ///     addresses: vec!["10.96.0.0/16".parse()?, "fd00::/112".parse()?],
    ///     ports: "30000-30100".parse()?,
    /// };
    /// let server = ApiServer::builder().service_ranges(ranges).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn service_ranges(mut self, ranges: ServiceRanges) -> Self {
        self.config.service_ranges = ranges;
        self
    }

    /// Creates the objects of the manifests in a directory before [`start`](Self::start) returns: those in the files
    /// `*.yaml`, `*.yml` and `*.json`, in the order of their names. Definitions of custom resources come first and are
    /// established before others, then namespaces. An object that exists gets the fields of its manifest, as by a
    /// merge patch.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// let directory = tempfile::tempdir()?;
    /// let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n";
    /// std::fs::write(directory.path().join("team.yaml"), text)?;
    /// let server = ApiServer::builder().load(directory.path()).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config.load = Some(directory.into());
        self
    }

    /// Sets the controllers that run. They act after [`start`](Self::start) has returned: wait through a watch for what
    /// they do.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, Controllers};
    /// let server = ApiServer::builder().controllers(Controllers::all()).start()?;
    /// let server = ApiServer::builder()
    ///     .controllers("garbage-collector-controller,namespace-controller".parse()?)
    ///     .start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.config.controllers = controllers;
        self
    }

    /// Sets how long events are kept after they were written, by the clock of the server; `None` for ever. They are
    /// deleted by leases with whole seconds, which up to 1,000 events share: they live for up to a twentieth of this
    /// time, at most a minute, longer.
    pub fn event_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.config.event_ttl = ttl.into();
        self
    }

    /// Sets the interval of compactions of the store, by the clock of the server; `None` for none.
    pub fn compaction_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.config.etcd_compaction_interval = interval.into();
        self
    }

    /// Sets the beginning of all keys in the store.
    pub fn etcd_prefix(mut self, prefix: &str) -> Self {
        self.config.etcd_prefix = format!("/{}", prefix.trim_matches('/'));
        self
    }

    /// Sets the shortest time after which a watch ends that has no timeout, by the clock of the server. The time of
    /// each is random, up to twice this one.
    pub fn min_request_timeout(mut self, timeout: Duration) -> Self {
        self.config.min_request_timeout = timeout;
        self
    }

    /// Sets the time limit of requests that are not watches.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.config.request_timeout = timeout;
        self
    }

    /// Sets the maximum number of reads in flight, by weight; 0 for no limit. Further ones wait, and get 429 after a
    /// quarter of the request timeout.
    pub fn max_requests_inflight(mut self, requests: u32) -> Self {
        self.config.max_requests_inflight = requests;
        self
    }

    /// Sets the maximum number of writes in flight; 0 for no limit.
    pub fn max_mutating_requests_inflight(mut self, requests: u32) -> Self {
        self.config.max_mutating_requests_inflight = requests;
        self
    }

    /// Sets the address of a service that webhooks name.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// let route = "system/hooks=127.0.0.1:9443".parse()?;
    /// let server = ApiServer::builder().webhook_route(route).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn webhook_route(mut self, route: WebhookRoute) -> Self {
        self.config.webhook_routes.push(route);
        self
    }

    /// Sets where the components are whose health `componentstatuses` tells. kube-apiserver has no flag for it.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, Components};
    /// let mut components = Components::default();
    /// components.scheduler = "127.0.0.1:10260".parse()?;
    /// let server = ApiServer::builder().components(components).start()?;
    /// # let _ = server;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn components(mut self, components: Components) -> Self {
        self.config.components = components;
        self
    }

    /// Sets whether requests without credentials are those of the user `system:anonymous`. Otherwise they are refused with
    /// 401. Requests over plain HTTP are not concerned.
    pub fn anonymous_auth(mut self, anonymous_auth: bool) -> Self {
        self.config.anonymous_auth = anonymous_auth;
        self
    }

    /// Sets the part of requests over HTTP/2 after which the client is told to connect anew.
    pub fn goaway_chance(mut self, chance: Chance) -> Self {
        self.config.goaway_chance = chance;
        self
    }
}
