use super::*;

/// What discovery says of a resource, in one line.
fn line(group: &str, version: &str, plural: &str) -> String {
    let resource = resource(group, version, plural).expect("a resource");
    let subresources: Vec<_> = resource
        .subresources()
        .iter()
        .map(Subresource::name)
        .collect();
    format!(
        "{} {} {:?} {:?} {:?} {:?}",
        resource.kind(),
        resource.singular(),
        resource.namespaced(),
        resource.short_names(),
        resource.categories(),
        subresources
    )
}

#[test]
fn discovery_is_that_of_a_real_server() {
    assert_eq!(
        line("", "v1", "configmaps"),
        r#"ConfigMap configmap true ["cm"] [] []"#
    );
    assert_eq!(
        line("", "v1", "nodes"),
        r#"Node node false ["no"] [] ["proxy", "status"]"#
    );
    assert_eq!(
        line("", "v1", "pods"),
        r#"Pod pod true ["po"] ["all"] ["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize", "status"]"#
    );
    assert_eq!(
        line("coordination.k8s.io", "v1", "leases"),
        "Lease lease true [] [] []"
    );
    assert_eq!(
        line("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        r#"CustomResourceDefinition customresourcedefinition false ["crd", "crds"] ["api-extensions"] ["status"]"#
    );
    let pods = resource("", "v1", "pods").unwrap();
    let eviction = pods.subresource("eviction").unwrap();
    assert_eq!(
        (eviction.group(), eviction.version(), eviction.kind()),
        ("policy", "v1", "Eviction")
    );
    assert_eq!(eviction.verbs(), ["create"]);
    assert_eq!(
        resource("", "v1", "namespaces").unwrap().verbs().join(","),
        "create,delete,get,list,patch,update,watch"
    );
}

#[test]
fn preferred_versions_come_first_and_betas_are_off() {
    let autoscaling = groups()
        .iter()
        .find(|group| group.name() == "autoscaling")
        .unwrap();
    let versions: Vec<_> = autoscaling.versions().iter().map(Version::name).collect();
    assert_eq!(versions, ["v2", "v1"]);
    assert_eq!(groups()[0].name(), "");
    assert!(version("apps", "v1").unwrap().on_by_default());
    assert!(
        !version("resource.k8s.io", "v1beta2")
            .unwrap()
            .on_by_default()
    );
    assert!(resources().all(|resource| !resource.version().contains("alpha")));
}

#[test]
fn every_resource_has_types() {
    for resource in resources() {
        assert!(
            resource.object().field("metadata").is_some(),
            "{}",
            resource.plural()
        );
        assert_eq!(resource.list().is_some(), resource.has_verb("list"));
        if let Some(list) = resource.list() {
            assert!(
                list.field("items").unwrap().ty().element().is_some(),
                "{}",
                resource.plural()
            );
            assert_eq!(
                kind(resource.group(), resource.version(), list.name())
                    .unwrap()
                    .full_name(),
                list.full_name()
            );
        }
        let found =
            resource_of_kind(resource.group(), resource.version(), resource.kind()).unwrap();
        assert_eq!(found.plural(), resource.plural());
    }
}

#[test]
fn every_type_is_defined() {
    for ty in &TABLE.types {
        let simple = !ty.full_name().contains('.') || ty.full_name().starts_with(['*', '[', '{']);
        assert!(
            ty.package().is_some() || simple,
            "{} is not defined",
            ty.full_name()
        );
        for field in ty.fields() {
            assert_eq!(
                ty.field(field.name()).map(Field::numbers),
                Some(field.numbers())
            );
            if let Some(list) = field.list().filter(|list| list.ty() == ListType::Map) {
                let element = field.ty().element().expect("a list");
                assert!(list.keys().count() > 0);
                assert!(
                    list.keys().all(|key| element.field(key).is_some()),
                    "{}.{}",
                    ty.name(),
                    field.name()
                );
            }
            if let Some(key) = field.merge_key() {
                assert!(
                    field.ty().element().expect("a list").field(key).is_some(),
                    "{}.{}",
                    ty.name(),
                    field.name()
                );
            }
        }
    }
}

#[test]
fn fields_have_their_facts() {
    let spec = type_named("core.v1.PodSpec").unwrap();
    let containers = spec.field("containers").unwrap();
    assert!(containers.required() && !containers.omit_empty());
    assert_eq!(
        containers.list().unwrap().keys().collect::<Vec<_>>(),
        ["name"]
    );
    assert_eq!(containers.ty().go_name(), "[]v1.Container");
    let volumes = spec.field("volumes").unwrap();
    assert_eq!(
        volumes.patch_strategies().collect::<Vec<_>>(),
        ["merge", "retainKeys"]
    );
    let ports = type_named("core.v1.Container")
        .unwrap()
        .field("ports")
        .unwrap();
    assert_eq!(
        ports.list().unwrap().keys().collect::<Vec<_>>(),
        ["containerPort", "protocol"]
    );
    assert_eq!(ports.merge_key(), Some("containerPort"));
    let protocol = ports.ty().element().unwrap().field("protocol").unwrap();
    assert_eq!(protocol.default_json(), Some(r#""TCP""#));
    let grace = spec.field("terminationGracePeriodSeconds").unwrap();
    assert!(grace.is_pointer() && matches!(grace.ty().target().shape(), Shape::Int64));
    // A field of an embedded struct, which is a message of its own in protobuf.
    let host_path = type_named("core.v1.Volume")
        .unwrap()
        .field("hostPath")
        .unwrap();
    assert_eq!(host_path.numbers(), [2, 1]);
    assert!(type_named("meta.v1.LabelSelector").unwrap().is_atomic());
    let endpoints = type_named("core.v1.Endpoints")
        .unwrap()
        .deprecation()
        .unwrap();
    assert_eq!(
        (endpoints.since, endpoints.replacement),
        ("1.33", Some(("discovery.k8s.io", "v1", "EndpointSlice")))
    );
    // Types may contain themselves.
    let schema = type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    assert_eq!(
        schema.field("not").unwrap().ty().target().full_name(),
        schema.full_name()
    );
}

#[test]
fn lookups_of_what_does_not_exist_find_nothing() {
    assert!(resource("apps", "v1", "widgets").is_none());
    assert!(resource("apps", "v2", "deployments").is_none());
    assert!(resource_of_kind("", "v1", "Widget").is_none());
    assert!(kind("", "v1", "PodSpec").is_none(), "a type, but no kind");
    assert!(kind("apps", "v1", "Pod").is_none());
    assert!(kind("no.such.group", "v1", "DeleteOptions").is_none());
    assert!(type_named("").is_none());
}
