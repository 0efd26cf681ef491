module revstore.invalid/clients/go-old

go 1.26.0

// The client of etcd 3.3 under the import path of 3.4, so that both run the same tests. Its own imports have the path
// of 3.3, and Go allows a version of a module under one path only: therefore two patch versions.
replace go.etcd.io/etcd => github.com/coreos/etcd v3.3.26+incompatible

require (
	github.com/coreos/etcd v3.3.27+incompatible
	github.com/coreos/go-semver v0.2.0
	github.com/coreos/go-systemd v0.0.0-20180511133405-39ca1b05acc7
	github.com/coreos/pkg v0.0.0-20160727233714-3ac0863d7acf
	github.com/gogo/protobuf v1.2.1
	github.com/golang/protobuf v1.3.2
	github.com/google/uuid v1.0.0
	go.etcd.io/etcd v3.3.26+incompatible
	go.uber.org/atomic v1.3.2
	go.uber.org/multierr v1.1.0
	go.uber.org/zap v1.10.0
	google.golang.org/grpc v1.26.0
)

require (
	golang.org/x/net v0.0.0-20190311183353-d8887717615a // indirect
	golang.org/x/sys v0.0.0-20190215142949-d0b11bdaac8a // indirect
	golang.org/x/text v0.3.0 // indirect
	google.golang.org/genproto v0.0.0-20190819201941-24fa4b261c55 // indirect
)
