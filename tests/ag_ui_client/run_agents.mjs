// Runs HttpAgents of released AG-UI clients, one after the other: a JSON array of runs on standard input, a JSON line for each on standard
// output. A client does here what it does in a web app: it sends the request, reads the stream, checks every event against its schema and
// the protocol's order, and applies it.
//
// A run: {client, url, method?, headers?, body?, input?}. `client` is a dependency of package.json. `body` (any JSON) replaces the
// RunAgentInput that an HttpAgent posts; without it that is posted, with threadId, runId, messages, … from `input`.
// A line: {events, messages, error, pending}. `error` is the client's refusal, null when it accepted all events to the end of the stream.
// `pending`: the tool calls that the client takes for its application's to answer; null when it does not say.
import { text } from "node:stream/consumers";

const quiet = (name) => (console[name] = () => {});
["log", "info", "warn", "error", "debug"].forEach(quiet);

async function runOf({ client, url, method, headers, body, input = {} }) {
  const { HttpAgent } = await import(client);
  class Agent extends HttpAgent {
    requestInit(runInput) {
      const init = super.requestInit(runInput);
      if (body !== undefined) init.body = JSON.stringify(body);
      if (method === "GET") delete init.body;
      return { ...init, method: method ?? init.method };
    }
  }
  const { threadId, messages, state, ...parameters } = input;
  const agent = new Agent({ url, headers, threadId, initialMessages: messages ?? [], initialState: state ?? {} });
  const events = [];
  let error = null;
  let pending = null;
  const subscriber = {
    onRunFinishedEvent: ({ pendingToolCallIds }) => void (pending = pendingToolCallIds ?? null),
    onEvent: ({ event }) => void events.push(event),
    onRunFailed: (failure) => void (error = failure.error.message),
  };
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (failure) {
    error = failure.message;
  }
  return { events, messages: agent.messages, error, pending };
}

for (const run of JSON.parse(await text(process.stdin))) {
  process.stdout.write(JSON.stringify(await runOf(run)) + "\n");
}
