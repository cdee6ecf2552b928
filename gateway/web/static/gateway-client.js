// The protocol of the gateway for a browser: submit once, watch, attach again, poll a bounded number of times. No DOM in here.
//
// One rule above all: a message has one submission id, made once and sent until it is answered. Sending it again joins the run that it
// made; it never makes a second one. Leaving a stream stops nothing, so all else is reading. docs/clients.md shows how it is used.

/** @typedef {{code: string, title: string, detail: string, status: number, retry: string, run_id?: string, blocked?: string}} Problem */
/** @typedef {{run_id: string, conversation_id: string, execution: string, persistence: string, reason: string|null, attention: string|null,
 *   resolution: {outcome: string, reason: string}|null, poll_after_seconds: number|null, interrupt: Interrupt|null}} Run */
/** @typedef {{interrupt_id: string, run_id: string, title: string, description: string, actions: string[], comment_max_chars: number,
 *   expires_at: string|null}} Interrupt */
/** @typedef {{submissionId: string, text: string, conversationId: string|null}} Submission */
/** @typedef {{submissionId: string, runId: string, interruptId: string, decision: "approve"|"reject", comment?: string}} Decision */
/**
 * What `submit`, `decide`, `watch` and `poll` yield, in order. Texts are whole so far, so that a stream that begins anew does no harm.
 * @typedef {{type: "connection", state: "sending"|"open"|"retrying"|"polling", waitSeconds?: number}
 *   | {type: "run", run: Run}
 *   | {type: "text", itemId: string, runId: string, text: string, complete: boolean}
 *   | {type: "tool", itemId: string, runId: string, name: string, status: "started"|"called"|"returned", parentItemId: string|null}
 *   | {type: "items", items: object[]}
 *   | {type: "problem", problem: Problem}
 *   | {type: "unanswered"}
 *   | {type: "end", run: Run|null, settled: boolean}} GatewayEvent
 */

/** Times that a POST is sent, or a stream opened again, before a person is asked: about half a minute. */
const ATTEMPTS = 6;
/** Looks at a run after its stream has ended; "check again" starts anew. */
const POLLS = 30;
/** Two heartbeats and a half: a stream that is silent for longer is dead, whatever the operating system says. */
const SILENCE_SECONDS = 40;
/** A stream that ended by itself after this long was cut on the way. */
const LONG_LIVED_SECONDS = 10;
/** A frame of the gateway has at most a few hundred KiB. */
const MAX_FRAME_CHARACTERS = 4 * 1024 * 1024;

/** A refusal of the gateway. */
export class ProblemError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.code);
    this.problem = problem;
  }
}

/** The network, not the gateway, is at fault: whether the request arrived is not known. */
export class Unreachable extends Error {}

/** @returns {string} A fresh submission id. */
export function newSubmissionId() {
  if (globalThis.crypto.randomUUID) return globalThis.crypto.randomUUID();
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16)); // plain HTTP, not on this machine
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The message that has no answer yet, kept over a reload: where it is, sending it again joins its run. One at a time, as a person writes.
 * What is kept has any fields; two messages are the same when all of them but `submissionId` are.
 */
export class Outbox {
  /** @param {Storage} storage One that is of this tab: two tabs with one outbox would be one person with one message. */
  constructor(storage = globalThis.sessionStorage, key = "gateway.unanswered") {
    this.storage = storage;
    this.key = key;
  }

  /** @returns {object|null} The message that is not answered, as `put` gave it. */
  get pending() {
    try {
      return JSON.parse(this.storage.getItem(this.key) ?? "null");
    } catch {
      return null;
    }
  }

  /** @param {object} content @returns {object} `content` with its submissionId: that of the same message, where it is still unanswered. */
  put(content) {
    const { submissionId, ...kept } = this.pending ?? {};
    const same = submissionId && JSON.stringify(kept) === JSON.stringify(content);
    const message = { ...content, submissionId: same ? submissionId : newSubmissionId() };
    this.storage.setItem(this.key, JSON.stringify(message));
    return message;
  }

  /** The gateway answered, or the person gave up. @param {string} [submissionId] Of which message; of any where it is not said. */
  drop(submissionId) {
    if (!submissionId || this.pending?.submissionId === submissionId) this.storage.removeItem(this.key);
  }
}

/** @param {Run} run @returns {boolean} Whether the run may still change without anybody's act. */
export function isUnderWay(run) {
  return run.poll_after_seconds !== null;
}

export class GatewayClient {
  /** @param {{base?: string, fetch?: typeof fetch}} options */
  constructor({ base = "", fetch: fetcher = globalThis.fetch.bind(globalThis) } = {}) {
    this.base = base;
    this.fetch = fetcher;
  }

  me() {
    return this.json("GET", "/api/internal/me");
  }

  async apps() {
    return (await this.json("GET", "/api/internal/apps")).apps;
  }

  /** @param {string} appId @param {string|null} cursor */
  conversations(appId, cursor = null) {
    return this.json("GET", `${agent(appId)}/conversations?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
  }

  /** @param {string} appId @param {string} id */
  conversation(appId, id) {
    return this.json("GET", `${agent(appId)}/conversations/${id}`);
  }

  /**
   * The newest items of a conversation, in order; with `next` as `cursor`, those before them.
   * @param {string} appId @param {string} id @param {{cursor?: string|null, signal?: AbortSignal}} [options]
   * @returns {Promise<{items: object[], next: string|null}>}
   */
  items(appId, id, { cursor = null, signal } = {}) {
    const query = `newest=true&limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
    return this.json("GET", `${agent(appId)}/conversations/${id}/items?${query}`, undefined, signal);
  }

  /** What is left of the quota. @param {string} appId */
  usage(appId) {
    return this.json("GET", `${agent(appId)}/usage`);
  }

  /** A look-up or a save retry, now; never an execution. @param {string} appId @param {string} runId @returns {Promise<Run>} */
  refresh(appId, runId) {
    return this.json("POST", `${agent(appId)}/runs/${runId}/refresh`);
  }

  /** Accept an incomplete answer and go on. @param {string} appId @param {string} runId @returns {Promise<Run>} */
  acknowledge(appId, runId) {
    return this.json("POST", `${agent(appId)}/runs/${runId}/acknowledge`);
  }

  /** @param {string} appId @param {string} id @param {string} title */
  rename(appId, id, title) {
    return this.json("PATCH", `${agent(appId)}/conversations/${id}`, { title });
  }

  /** @param {string} appId @param {string} id */
  remove(appId, id) {
    return this.json("DELETE", `${agent(appId)}/conversations/${id}`);
  }

  /** @param {string} appId @param {string} runId @param {AbortSignal} [signal] @returns {Promise<Run>} */
  run(appId, runId, signal) {
    return this.json("GET", `${agent(appId)}/runs/${runId}`, undefined, signal);
  }

  /**
   * Submit a message and follow its run to the end.
   * @param {string} appId @param {Submission} submission @param {AbortSignal} signal @returns {AsyncGenerator<GatewayEvent>}
   */
  async *submit(appId, submission, signal) {
    const body = { submission_id: submission.submissionId, text: submission.text };
    if (submission.conversationId) body.conversation_id = submission.conversationId;
    yield* this.post(appId, `${agent(appId)}/runs`, body, signal);
  }

  /**
   * Answer a question, and follow the run that delivers the answer.
   * @param {string} appId @param {Decision} decision @param {AbortSignal} signal @returns {AsyncGenerator<GatewayEvent>}
   */
  async *decide(appId, { submissionId, runId, interruptId, decision, comment }, signal) {
    const body = { submission_id: submissionId, interrupt_id: interruptId, decision };
    if (comment) body.comment = comment;
    yield* this.post(appId, `${agent(appId)}/runs/${runId}/decision`, body, signal);
  }

  /** Send until there is an answer: the same bytes each time. */
  async *post(appId, path, body, signal) {
    for (let attempt = 1; ; attempt += 1) {
      yield { type: "connection", state: "sending" };
      let waitSeconds = backoffSeconds(attempt);
      try {
        const response = await this.request("POST", path, body, signal, "text/event-stream");
        yield* this.follow(appId, response, null, signal);
        return;
      } catch (error) {
        if (error instanceof ProblemError) {
          // 5xx with "same-submission": nothing is known to have happened, and asking again is safe. All else is for a person to read.
          if (error.problem.status < 500 || error.problem.retry !== "same-submission" || attempt >= ATTEMPTS) {
            yield { type: "problem", problem: error.problem };
            return;
          }
          waitSeconds = Math.max(waitSeconds, error.retryAfterSeconds ?? 0);
        } else if (!(error instanceof Unreachable)) {
          throw error;
        } else if (attempt >= ATTEMPTS) {
          yield { type: "unanswered" };
          return;
        }
      }
      yield { type: "connection", state: "retrying", waitSeconds };
      await pause(waitSeconds, signal);
    }
  }

  /**
   * Watch a run that exists: its stream, then bounded polling until it is settled.
   * @param {string} appId @param {string} runId @param {AbortSignal} signal @returns {AsyncGenerator<GatewayEvent>}
   */
  async *watch(appId, runId, signal) {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      try {
        const openedAt = performance.now();
        const response = await this.request("GET", `${agent(appId)}/runs/${runId}/events`, undefined, signal, "text/event-stream");
        if (yield* this.follow(appId, response, runId, signal)) return;
        // A stream that lived for a while was cut by something in between: that is no reason to give up on a long run.
        if (performance.now() - openedAt > LONG_LIVED_SECONDS * 1000) attempt = 1;
      } catch (error) {
        if (error instanceof ProblemError && error.problem.status < 500) {
          yield { type: "problem", problem: error.problem };
          return;
        }
        if (!(error instanceof ProblemError || error instanceof Unreachable)) throw error;
      }
      yield { type: "connection", state: "retrying", waitSeconds: backoffSeconds(attempt) };
      await pause(backoffSeconds(attempt), signal);
    }
    yield* this.poll(appId, runId, signal);
  }

  /**
   * Look at a run until it is settled, a bounded number of times. Its last event is `end`, with `settled` false when looking is over.
   * @param {string} appId @param {string} runId @param {AbortSignal} signal @returns {AsyncGenerator<GatewayEvent>}
   */
  async *poll(appId, runId, signal) {
    let run = null;
    for (let looks = 1; looks <= POLLS; looks += 1) {
      let waitSeconds = 2;
      try {
        run = await this.run(appId, runId, signal);
        waitSeconds = run.poll_after_seconds ?? waitSeconds;
        yield { type: "run", run };
        if (run.snapshot) yield { type: "items", items: run.snapshot.items };
        if (!isUnderWay(run)) {
          yield { type: "end", run, settled: true };
          return;
        }
      } catch (error) {
        if (error instanceof ProblemError && error.problem.status < 500) {
          yield { type: "problem", problem: error.problem };
          return;
        }
        if (!(error instanceof ProblemError || error instanceof Unreachable)) throw error;
        waitSeconds = Math.max(run?.poll_after_seconds ?? waitSeconds, error.retryAfterSeconds ?? 0);
      }
      yield { type: "connection", state: "polling" };
      await pause(Math.max(1, waitSeconds), signal);
    }
    yield { type: "end", run, settled: false };
  }

  /** The events of one stream. Gives true when all is said, false for a stream that ended without an end: watch the run again. */
  async *follow(appId, response, knownRunId, signal) {
    yield { type: "connection", state: "open" };
    let runId = knownRunId;
    let run = null;
    const reading = new Reading();
    try {
      for await (const frame of frames(response, signal)) {
        if (frame.type === "RUN_STARTED") runId = frame.runId;
        for (const event of reading.events(frame, runId)) {
          if (event.type === "run") run = event.run;
          yield event;
        }
        if (frame.type === "RUN_FINISHED" || (frame.type === "RUN_ERROR" && run && !isUnderWay(run))) {
          yield { type: "end", run, settled: true };
          return true;
        }
        if (frame.type === "RUN_ERROR") {
          yield* this.poll(appId, runId, signal);
          return true;
        }
      }
    } catch (error) {
      if (!(error instanceof Unreachable) || runId === null) throw error;
    }
    // A bare end: the server restarts, we read too slowly, or the connection broke. The run goes on without us.
    if (runId === null) throw new Unreachable();
    if (knownRunId === null) {
      yield { type: "connection", state: "retrying", waitSeconds: 1 };
      await pause(1, signal);
      yield* this.watch(appId, runId, signal);
      return true;
    }
    return false;
  }

  /** One JSON exchange. Throws ProblemError or Unreachable. */
  async json(method, path, body, signal) {
    const response = await this.request(method, path, body, signal, "application/json");
    try {
      return await response.json();
    } catch (error) {
      throw asUnreachable(error, signal);
    }
  }

  async request(method, path, body, signal, accept) {
    const headers = { Accept: accept };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await this.fetch(this.base + path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
      });
    } catch (error) {
      throw asUnreachable(error, signal);
    }
    if (response.ok) return response;
    const refused = new ProblemError(await problemOf(response));
    refused.retryAfterSeconds = Number(response.headers.get("Retry-After")) || null;
    throw refused;
  }
}

/** Turns frames into events, and keeps the texts so far. */
class Reading {
  texts = new Map();
  tools = new Map();

  *events(frame, runId) {
    const id = frame.messageId;
    switch (frame.type) {
      case "CUSTOM":
        if (frame.name === "gateway.run") yield { type: "run", run: frame.value };
        break;
      case "TEXT_MESSAGE_START":
        this.texts.set(id, "");
        yield { type: "text", itemId: id, runId, text: "", complete: false };
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.texts.set(id, (this.texts.get(id) ?? "") + frame.delta);
        yield { type: "text", itemId: id, runId, text: this.texts.get(id), complete: false };
        break;
      case "TEXT_MESSAGE_END":
        yield { type: "text", itemId: id, runId, text: this.texts.get(id) ?? "", complete: true };
        break;
      case "TOOL_CALL_START":
        this.tools.set(frame.toolCallId, { name: frame.toolCallName, parentItemId: frame.parentMessageId ?? null });
        yield this.tool(frame.toolCallId, runId, "started");
        break;
      case "TOOL_CALL_END":
        yield this.tool(frame.toolCallId, runId, "called");
        break;
      case "TOOL_CALL_RESULT":
        yield this.tool(frame.toolCallId, runId, "returned");
        break;
      default: // later events of the protocol mean nothing to us
    }
  }

  tool(itemId, runId, status) {
    const { name, parentItemId } = this.tools.get(itemId) ?? { name: "tool", parentItemId: null };
    return { type: "tool", itemId, runId, name, status, parentItemId };
  }
}

/** The JSON of each `data:` frame; comments only show that the stream lives. Throws Unreachable when it breaks or falls silent. */
async function* frames(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await within(SILENCE_SECONDS, reader.read());
      if (done) return;
      buffer += value;
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        const block = buffer.slice(0, end);
        buffer = buffer.slice(end + 2);
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield JSON.parse(lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n"));
      }
      if (buffer.length > MAX_FRAME_CHARACTERS) throw new Unreachable();
    }
  } catch (error) {
    throw asUnreachable(error, signal);
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function problemOf(response) {
  const fallback = {
    code: "unreadable_answer",
    title: "Unexpected answer",
    detail: `The server answered with status ${response.status}. Try again in a moment.`,
    status: response.status,
    retry: response.status >= 500 ? "same-submission" : "never",
  };
  try {
    const type = response.headers.get("Content-Type") ?? "";
    return type.startsWith("application/problem+json") ? await response.json() : fallback;
  } catch {
    return fallback;
  }
}

function asUnreachable(error, signal) {
  if (signal?.aborted || error instanceof ProblemError || error instanceof Unreachable) return error;
  return new Unreachable();
}

function agent(appId) {
  return `/api/internal/apps/${encodeURIComponent(appId)}/agent`;
}

function backoffSeconds(attempt) {
  return Math.min(8, 0.5 * 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
}

function within(seconds, promise) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Unreachable()), seconds * 1000);
  });
  return Promise.race([promise, silence]).finally(() => clearTimeout(timer));
}

/** Waits; ends early when the network comes back, and throws when `signal` aborts. */
function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const done = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", done);
      signal?.removeEventListener("abort", done);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    globalThis.addEventListener?.("online", done);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}
