package kube_test

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/discovery"

	"revstore.invalid/revstoretest/kube"
)

func TestAClientWorksWithTheConfiguration(t *testing.T) {
	server := kube.Start(t)
	config, err := server.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.ServerVersion()
	if err != nil || version.Major != "1" {
		t.Fatal(version, err)
	}
	clock, err := server.Control.Advance(t.Context(), time.Hour)
	if err != nil || clock.Now.Duration < time.Hour {
		t.Fatal(clock, err)
	}
	server.Close()
	if _, err := os.Stat(server.Kubeconfig); !os.IsNotExist(err) {
		t.Fatal("the kubeconfig is left: ", err)
	}
}
