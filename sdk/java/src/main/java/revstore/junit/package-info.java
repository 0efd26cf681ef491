/** An etcd, or a Kubernetes API server, for tests of JUnit that control its time, faults and history. */
package revstore.junit;
