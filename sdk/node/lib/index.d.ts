/** A number of milliseconds, or a text such as 1m30s. */
export type Duration = number | string;
export type Key = string | Uint8Array;
export type Mode = 'system' | 'manual' | 'auto';

/** The point at which a request took effect; times are in milliseconds since the start of the clock. */
export interface Point {
  revision: number;
  time: number;
}
export interface Clock extends Point {
  mode: Mode;
  now: number;
}
export interface Pending {
  kind: string;
  id: string;
  due: number;
}
export interface Fault {
  methods?: string[];
  prefix?: Key;
  range?: [Key, Key];
  user?: string;
  client?: string;
  connection?: number;
  verb?: string;
  resource?: string;
  namespace?: string;
  name?: string;
  next?: number;
  every?: number;
  probability?: number;
  seed?: number;
  fromRevision?: number;
  toRevision?: number;
  error?: string;
  errorAfter?: string;
  preset?: string;
  delay?: Duration;
  delayWall?: boolean;
  reset?: true;
  blackHole?: true;
  goaway?: true;
  refuse?: true;
  hold?: true;
  cut?: true;
  cancelCompacted?: true;
  loseKeepAlive?: true;
  http?: { status: number; retryAfter?: number };
  stale?: true;
}
export interface Watch {
  id: number;
  client: string;
  user: string;
  connection: number;
  key: Buffer;
  rangeEnd: Buffer;
  start: number;
  position: number;
  lag: number;
  state: 'synced' | 'sending' | 'held';
}
export interface Connection {
  id: number;
  address: string;
  client: string;
  since: number;
  requests: number;
}
export interface Lease {
  id: string;
  ttl: number;
  remaining: number;
  keys: number;
}
export interface JournalFilter {
  methods?: string[];
  client?: string;
  user?: string;
  connection?: number;
  after?: number;
  follow?: boolean;
}
export interface JournalRecord extends Point {
  number: number;
  event: 'request' | 'opened' | 'progress' | 'ended';
  method: string;
  client: string;
  user: string;
  connection: number;
  keys: { key: Buffer; rangeEnd: Buffer }[];
  moreKeys: number;
  code: string;
  error: string;
  duration: number;
  rule: number;
  watch: number;
  lag: number;
  dropped: number;
}

/** A client of the control port of a server. docs/control.md has the verbs. */
export class Control {
  constructor(url: string);
  readonly url: string;
  setClock(mode: Mode): Promise<Clock>;
  advance(by: Duration): Promise<Clock>;
  advanceToNext(): Promise<Clock>;
  pending(): Promise<Pending[]>;
  addFault(fault: Fault): Promise<number>;
  faults(): Promise<{ id: number; rule: string; fired: number }[]>;
  clearFaults(id?: number): Promise<number>;
  holdWatches(id?: number): Promise<number>;
  releaseWatches(id?: number): Promise<number>;
  cutWatches(id?: number): Promise<number>;
  cancelWatchesCompacted(id?: number): Promise<number>;
  bookmarkWatches(id?: number): Promise<number>;
  watches(): Promise<Watch[]>;
  connections(): Promise<Connection[]>;
  checkpoint(name: string): Promise<Point>;
  restore(name: string, how?: { bumpRevision?: number; markCompacted?: boolean }): Promise<Point>;
  reset(how?: { keepRevision?: boolean }): Promise<Point>;
  jump(revision: number): Promise<Point>;
  compact(revision?: number): Promise<Point>;
  fork(): Promise<Point & { id: string; endpoint: string; control: string }>;
  forks(): Promise<{ id: string; endpoint: string; control: string }[]>;
  drop(id: string): Promise<Point>;
  dump(): Promise<string>;
  load(dump: string | Uint8Array): Promise<Point>;
  importSnapshot(snapshot: Uint8Array): Promise<Point>;
  leases(): Promise<Lease[]>;
  /** Ends a lease: a bigint, or its hexadecimal text. */
  expire(lease: bigint | string): Promise<Point>;
  raiseAlarm(name: 'nospace' | 'corrupt'): Promise<Point>;
  clearAlarm(name: 'nospace' | 'corrupt'): Promise<Point>;
  newTerm(): Promise<Point & { term: number }>;
  journal(filter?: JournalFilter): AsyncGenerator<JournalRecord>;
  /** Returns the journal with the requests as JSON, one record in each line, for `revstore ctl journal replay`. */
  journalLines(): Promise<string>;
  waitRevision(revision: number, timeout?: Duration): Promise<Point>;
  waitKey(key: Key, timeout?: Duration): Promise<Point>;
  waitWatchers(watchers: number, timeout?: Duration): Promise<Point>;
  call(method: string, request?: object): Promise<any>;
}

/** A request that the server refused, with the code of gRPC. */
export class ControlError extends Error {
  static readonly INVALID_ARGUMENT: number;
  static readonly DEADLINE_EXCEEDED: number;
  static readonly NOT_FOUND: number;
  static readonly RESOURCE_EXHAUSTED: number;
  static readonly FAILED_PRECONDITION: number;
  static readonly OUT_OF_RANGE: number;
  static readonly UNIMPLEMENTED: number;
  readonly method: string;
  readonly code: number;
  readonly text: string;
}

/** A server was not found, or did not start. */
export class StartError extends Error {}

export interface ServerOptions {
  /** The path of the server, before that of the variable, of the package and of PATH. */
  binary?: string;
  flags?: string[];
  /** The time in milliseconds in which the server must be ready; 30,000 without it. */
  startTimeout?: number;
  clock?: Mode;
  control?: boolean;
}

declare class Running {
  readonly control: Control;
  close(): Promise<unknown>;
  /** Writes the store, the journal and the log to files of a new directory, and returns its path. */
  save(name: string, directory?: string): Promise<string>;
}
/** An etcd, or a fork of one. */
export class Server extends Running {
  static start(options?: ServerOptions): Promise<Server>;
  readonly endpoint: string;
  fork(): Promise<Server>;
}
/** A Kubernetes API server. */
export class ApiServer extends Running {
  static start(options?: ServerOptions): Promise<ApiServer>;
  readonly url: string;
  readonly kubeconfig: string;
}

type Body<S> = (server: S, ...context: any[]) => unknown;
/** Returns a function for a test with a server of its own. */
export function withRevstore(body: Body<Server>): (...context: any[]) => Promise<unknown>;
export function withRevstore(options: ServerOptions, body: Body<Server>): (...context: any[]) => Promise<unknown>;
/** Returns a function for a test with a fork of a server. */
export function withFork(parent: Server | (() => Server | Promise<Server>), body: Body<Server>): (...context: any[]) => Promise<unknown>;
/** Returns a function for a test with a Kubernetes API server of its own. */
export function withApiServer(body: Body<ApiServer>): (...context: any[]) => Promise<unknown>;
export function withApiServer(options: ServerOptions, body: Body<ApiServer>): (...context: any[]) => Promise<unknown>;
