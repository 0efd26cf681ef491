//! Tests of the etcd source with users, TLS and large responses, against our server and a real etcd.

use std::sync::Arc;

use etcd_client::{Client, Permission};
use futures_util::StreamExt as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use revstore_engine::KeyRange;
use revstore_tests::server::{Endpoint, Options, Servers};
use revstore_watch_cache::Revision;
use revstore_watch_cache::clock::SystemClock;
use revstore_watch_cache::source::{
    ConditionalWrite, EtcdOptions, EtcdSource, EtcdTls, ListRequest, Source, SourceError,
    WatchRequest, WriteAction, WriteOutcome,
};

use crate::support::PODS;

revstore_tests::on_every_server! {
    needs: [];
    a_user_gets_a_new_token_when_the_old_one_ends,
    tls_verifies_the_server_and_authenticates_the_client,
    a_response_in_fragments_has_whole_revisions_in_order,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(async { tokio::time::timeout(revstore_tests::poll::LIMIT, future).await })
        .unwrap()
}

fn source(options: &EtcdOptions) -> EtcdSource {
    EtcdSource::new(options, Arc::new(SystemClock::new())).unwrap()
}

async fn list(source: &EtcdSource) -> Result<usize, SourceError> {
    let request = ListRequest {
        range: KeyRange::prefix(PODS),
        at: None,
        limit: None,
    };
    source.list(request).await.map(|page| page.count)
}

async fn write(source: &EtcdSource, key: &str) -> Result<WriteOutcome, SourceError> {
    let write = ConditionalWrite {
        key: key.to_owned().into(),
        expected: None,
        action: WriteAction::Put {
            value: "{}".into(),
            time_to_live: None,
        },
    };
    source.write(write).await
}

fn unavailable<T>(result: Result<T, SourceError>) -> String {
    match result {
        Err(SourceError::Unavailable(text)) => text,
        Err(error) => panic!("unexpected error {error}"),
        Ok(_) => panic!("unexpected success"),
    }
}

/// Enables authentication, with a user who may use the keys of pods.
async fn enable_auth(admin: &mut Client) {
    admin.user_add("root", "r", None).await.unwrap();
    admin.role_add("root").await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    admin.role_add("pods").await.unwrap();
    let pods = Permission::read_write(PODS).with_prefix();
    admin.role_grant_permission("pods", pods).await.unwrap();
    admin.user_add("cache", "c", None).await.unwrap();
    admin.user_grant_role("cache", "pods").await.unwrap();
    admin.auth_enable().await.unwrap();
    let root = Some(("root".to_owned(), "r".to_owned()));
    admin.update_user(root).await.unwrap();
}

fn a_user_gets_a_new_token_when_the_old_one_ends(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let url = format!("http://{}", server.address());
    block_on(async {
        let mut admin = Client::connect([&url], None).await.unwrap();
        let options = EtcdOptions::new([&url]).revision_key(PODS);
        let user = source(&options.clone().user("cache", "c"));
        // Authentication is enabled while the source is in use.
        assert_eq!(list(&user).await, Ok(0));
        enable_auth(&mut admin).await;
        assert_eq!(list(&user).await, Ok(0));
        let request = WatchRequest {
            range: KeyRange::prefix(PODS),
            after: Revision(1),
            previous: false,
        };
        let mut open = user.watch(request.clone()).await.unwrap();
        let end_tokens = async |admin: &mut Client| {
            // Ends all tokens of the user.
            let changed = admin.user_change_password("cache", "c").await;
            changed.unwrap();
        };
        end_tokens(&mut admin).await;
        let written = write(&user, &format!("{PODS}/ns/a")).await;
        assert!(matches!(written, Ok(WriteOutcome::Done(_))), "{written:?}");
        assert_eq!(open.next().await.unwrap().unwrap().changes.len(), 1);
        end_tokens(&mut admin).await;
        user.current_revision().await.unwrap();
        end_tokens(&mut admin).await;
        // A server may create the watch and then cancel it; the next attempt has a new token.
        let mut attempts = 0;
        let changes = loop {
            attempts += 1;
            assert!(attempts < 3, "no watch with a new token");
            let Ok(mut watch) = user.watch(request.clone()).await else {
                continue;
            };
            if let Some(Ok(batch)) = watch.next().await {
                break batch.changes.len();
            }
        };
        assert_eq!(changes, 1);
        // Errors of users who may not do it.
        assert!(unavailable(write(&user, "/elsewhere").await).contains("permission denied"));
        let wrong = source(&options.clone().user("cache", "wrong"));
        assert!(unavailable(list(&wrong).await).contains("authentication failed"));
        let nobody = source(&options);
        assert!(unavailable(list(&nobody).await).contains("user name is empty"));
    });
}

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// Returns the certificate of a new authority, and certificates for 127.0.0.1 that it issued.
fn certificates<const N: usize>() -> (String, [Pair; N]) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let issue = |_| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        Pair {
            certificate: params.signed_by(&key, &issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    };
    (certificate, std::array::from_fn(issue))
}

fn tls_verifies_the_server_and_authenticates_the_client(servers: &Servers) {
    let (authority, [own, client]) = certificates();
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let server: Box<dyn Endpoint> = servers.fresh(&Options {
        tls_flags: vec![
            format!("--cert-file={}", file("cert", &own.certificate)),
            format!("--key-file={}", file("key", &own.key)),
            format!("--trusted-ca-file={}", file("ca", &authority)),
            "--client-cert-auth".to_owned(),
        ],
        ..Options::default()
    });
    let address = server.address();
    block_on(async {
        let with = |tls| source(&EtcdOptions::new([address.to_string()]).tls(tls));
        let identity = |tls: EtcdTls| tls.identity(client.certificate.clone(), client.key.clone());
        let trusted = || EtcdTls::new(authority.clone());
        assert_eq!(list(&with(identity(trusted()))).await, Ok(0));
        let error = unavailable(list(&with(trusted())).await);
        assert!(!error.is_empty());
        let (other, []) = certificates();
        let error = unavailable(list(&with(identity(EtcdTls::new(other)))).await);
        assert!(error.contains("certificate"), "{error}");
        let named = identity(trusted()).server_name("another.example");
        let error = unavailable(list(&with(named)).await);
        assert!(error.contains("certificate"), "{error}");
    });
}

fn a_response_in_fragments_has_whole_revisions_in_order(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    let url = format!("http://{}", server.address());
    block_on(async {
        let mut client = Client::connect([&url], None).await.unwrap();
        // A server fragments responses above 1.5 MiB.
        let value = "x".repeat(1 << 20);
        let mut revisions = Vec::new();
        for number in 0..6 {
            let key = format!("{PODS}/ns/p{number}");
            let put = client.put(key, value.as_str(), None).await.unwrap();
            revisions.push(put.header().unwrap().revision());
        }
        let request = WatchRequest {
            range: KeyRange::prefix(PODS),
            after: Revision(1),
            previous: true,
        };
        let mut watch = source(&EtcdOptions::new([&url]))
            .watch(request)
            .await
            .unwrap();
        let mut found = Vec::new();
        while found.len() < revisions.len() {
            let batch = watch.next().await.unwrap().unwrap();
            found.extend(batch.changes.iter().map(|change| change.revision.0));
            assert!(found.last().is_none_or(|newest| *newest <= batch.through.0));
        }
        assert_eq!(found, revisions);
    });
}
