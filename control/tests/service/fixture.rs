//! The servers of the tests, and their requests.

use std::any::Any;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use revstore_control::call::{Method, MethodKind};
use revstore_control::clock::{ClockMode, ControlClock};
use revstore_control::fault::Rules;
use revstore_control::journal::Journal;
use revstore_control::open::Open;
use revstore_control::proto::control_client::ControlClient;
use revstore_control::service::{Access, ControlService};
use revstore_control::store::{DumpForm, Fork, Frozen, StoreFile};
use revstore_control::{AlarmName, Control, ControlError, Hooks, ServedNode, Target};
use revstore_engine::{Engine, EngineBuilder, Revision};
use serde_json::Value;
use tokio::sync::watch;
use tonic::Code;
use tower_service::Service;

pub(crate) fn hooks() -> Hooks {
    let method = |name, kind| Method { name, kind };
    let methods = [
        method("etcdserverpb.KV/Put", MethodKind::Keys),
        method("etcdserverpb.Watch/Watch", MethodKind::Watch),
        method("etcdserverpb.Lease/LeaseKeepAlive", MethodKind::KeepAlive),
    ];
    Hooks {
        rules: Rules::new(&methods),
        journal: Journal::new(),
        open: Open::new(),
    }
}

/// The bytes that checkpoints may take.
pub(crate) const MEMORY_LIMIT: u64 = 10_000;

/// A server that consists of an engine and a text, which a test can replace.
#[derive(Debug)]
pub(crate) struct Replaceable {
    pub(crate) engine: Mutex<Engine>,
    pub(crate) state: Mutex<String>,
    pub(crate) replaced: watch::Sender<u64>,
    /// A clock that moves by a second whenever the revision is asked for, as running time might.
    pub(crate) restless: Mutex<Option<ControlClock>>,
    /// Replaces the node when it was asked for.
    pub(crate) next: Mutex<Option<ReplaceableNode>>,
    /// What the last fork consists of.
    pub(crate) last_fork: Mutex<Option<Frozen>>,
    /// A key that is written while the next fork starts.
    pub(crate) write_during_fork: Mutex<Option<&'static str>>,
}

#[derive(Debug)]
pub(crate) struct ReplaceableNode {
    pub(crate) engine: Engine,
    pub(crate) state: String,
}

impl ServedNode for ReplaceableNode {
    fn engine(&self) -> Engine {
        self.engine.clone()
    }

    fn state(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(self.state.clone()))
    }
}

impl Target for Replaceable {
    fn node(&self) -> Arc<dyn ServedNode> {
        let node = ReplaceableNode {
            engine: self.engine.lock().clone(),
            state: self.state.lock().clone(),
        };
        if let Some(next) = self.next.lock().take() {
            *self.state.lock() = next.state;
            self.replace_engine(next.engine);
        }
        Arc::new(node)
    }

    fn revision(&self) -> Revision {
        if let Some(clock) = &*self.restless.lock() {
            clock.advance(Duration::from_secs(1)).unwrap();
        }
        self.engine.lock().current_revision()
    }

    fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    fn check_replaceable(&self) -> Result<(), ControlError> {
        if *self.state.lock() == "journal" {
            return Err(ControlError::Refused("there is a journal".to_owned()));
        }
        Ok(())
    }

    fn replace(&self, frozen: Frozen) -> Result<(), ControlError> {
        let state = frozen.node.map(|state| state.downcast::<String>().unwrap());
        *self.state.lock() = state.map_or_else(String::new, |state| (*state).clone());
        self.replace_engine(frozen.engine);
        Ok(())
    }

    fn write_dump(
        &self,
        frozen: &Frozen,
        form: DumpForm,
        to: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        let state = frozen.node.as_ref().unwrap();
        let state = state.downcast_ref::<String>().unwrap();
        writeln!(to, "{form:?}\n{state}")?;
        for kv in frozen.engine.dump().history() {
            to.write_all(kv.key())?;
            to.write_all(b"=")?;
            to.write_all(kv.value())?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    fn read_store(
        &self,
        bytes: &[u8],
        file: StoreFile,
        builder: EngineBuilder,
    ) -> Result<Frozen, ControlError> {
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|error| ControlError::Damaged(error.to_string()))?;
        assert!(!text.contains("panic"), "a bug");
        let engine = builder.build();
        let mut lines = text.lines();
        let form = lines.next().unwrap_or_default();
        if form != format!("{file:?}") && form != "Text" {
            return Err(ControlError::Damaged("line 1: another form".to_owned()));
        }
        let state = lines.next().unwrap_or_default().to_owned();
        for line in lines {
            let (key, value) = line.split_once('=').unwrap();
            engine.put(key.to_owned(), value.to_owned()).unwrap();
        }
        Ok(Frozen {
            engine,
            node: Some(Arc::new(state)),
        })
    }

    fn fork(&self, frozen: Frozen, clock: ControlClock) -> Result<Box<dyn Fork>, ControlError> {
        *self.last_fork.lock() = Some(frozen.clone());
        if let Some(write) = self.write_during_fork.lock().take() {
            self.engine.lock().put(write, "").unwrap();
        }
        Ok(Box::new(Forked(frozen.engine, clock)))
    }

    fn alarm(&self, _: AlarmName, _: bool) -> Result<Vec<AlarmName>, ControlError> {
        Err(ControlError::Refused("an engine has no alarms".into()))
    }

    fn new_term(&self) -> Result<u64, ControlError> {
        Err(ControlError::Refused("an engine has no terms".into()))
    }
}

/// A fork without ports.
#[derive(Debug)]
pub(crate) struct Forked(pub(crate) Engine, pub(crate) ControlClock);

impl Fork for Forked {
    fn endpoint(&self) -> String {
        format!("http://revision-{}", self.0.current_revision())
    }

    fn control(&self) -> String {
        format!("http://{}-{}", self.1.mode(), self.1.time().as_secs())
    }
}

impl Replaceable {
    pub(crate) fn replace_engine(&self, engine: Engine) {
        *self.engine.lock() = engine;
        self.replaced.send_modify(|count| *count += 1);
    }
}

pub(crate) struct Fixture {
    pub(crate) control: Control,
    pub(crate) target: Arc<Replaceable>,
    pub(crate) service: ControlService,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Access {
            token: None,
            any_host: false,
        })
    }

    pub(crate) fn with(access: Access) -> Self {
        let clock = ControlClock::new(ClockMode::Manual);
        let engine = Engine::builder().clock(clock.clone()).build();
        let target = Arc::new(Replaceable {
            engine: Mutex::new(engine),
            state: Mutex::default(),
            replaced: watch::Sender::new(0),
            restless: Mutex::default(),
            next: Mutex::default(),
            last_fork: Mutex::default(),
            write_during_fork: Mutex::default(),
        });
        let control = Control::new(clock, target.clone(), hooks(), MEMORY_LIMIT);
        let service = ControlService::new(control.clone(), access);
        Self {
            control,
            target,
            service,
        }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, String) {
        let Ok(response) = self.service.clone().call(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn post(&self, method: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let (status, text) = self.send(post(method, body)).await;
        assert!(
            text.ends_with('\n') && text.lines().count() == 1,
            "{text:?}"
        );
        (status, serde_json::from_str(&text).unwrap())
    }

    pub(crate) async fn ok(&self, method: &str, body: Value) -> Value {
        let (status, answer) = self.post(method, body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{method} {body}: {answer}");
        answer
    }

    pub(crate) async fn refused(&self, method: &str, body: Value) -> (StatusCode, Code, String) {
        let (status, answer) = self.post(method, body.to_string()).await;
        assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
        let code = i32::try_from(answer["code"].as_i64().unwrap()).unwrap();
        (
            status,
            Code::from_i32(code),
            answer["error"].as_str().unwrap().to_owned(),
        )
    }

    pub(crate) fn grpc(&self) -> ControlClient<WithHost> {
        ControlClient::new(WithHost(self.service.clone()))
    }
}

pub(crate) fn post(method: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::post(format!("/control/v1/{method}")).header("host", "localhost:2378");
    request.body(Full::new(body.into())).unwrap()
}

/// The service with the authority that a connection would add.
#[derive(Clone)]
pub(crate) struct WithHost(pub(crate) ControlService);

impl Service<Request<tonic::body::Body>> for WithHost {
    type Response = Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = <ControlService as Service<Request<tonic::body::Body>>>::Future;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        let host = http::HeaderValue::from_static("127.0.0.1:2378");
        request.headers_mut().insert("host", host);
        self.0.call(request)
    }
}
