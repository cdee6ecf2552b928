// People who chat with the published client (gateway-client.js), in one node. First line of standard input: what to do, as JSON
// {client, base, app, people: [{subject, token}], readingSeconds, longEvery, patient}; a second line, "stop": finish what was said, and leave.
// Writes a line of JSON for each message that was answered, and for whatever went wrong on the way.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = JSON.parse((await lines.next()).value);
// By its text: node 18 takes a file named .js for a module only where a package.json says so.
const { GatewayClient } = await import(`data:text/javascript;base64,${readFileSync(told.client).toString("base64")}`);

const never = new AbortController().signal;
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
let stopped;
const stop = new Promise((resolve) => { stopped = resolve; });
let stopping = false;
lines.next().then(() => { stopping = true; stopped(); });

/** A person's reading, which ends early when everybody leaves. */
function reads(seconds) {
  let timer;
  return Promise.race([stop, new Promise((resolve) => { timer = setTimeout(resolve, seconds * 1000); })]).finally(() => clearTimeout(timer));
}

/** fetch with a token, that tells of each answer that is none and of each connection or stream that broke. */
function watched({ subject, token }) {
  return async (url, options) => {
    let response;
    try {
      response = await fetch(url, { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } });
    } catch (error) {
      write({ broken: "request", subject, says: String(error.cause ?? error) });
      throw error;
    }
    if (!response.ok) {
      const text = await response.text();
      write({ refused: response.status, subject, type: response.headers.get("Content-Type"), text });
      return new Response(text, response);
    }
    const reader = response.body.getReader();
    let left = false;
    const body = new ReadableStream({
      async pull(controller) {
        try {
          const { value, done } = await reader.read();
          if (left) return;
          if (done) controller.close();
          else controller.enqueue(value);
        } catch (error) {
          if (left) return;
          write({ broken: "stream", subject, says: String(error.cause ?? error) });
          controller.error(error);
        }
      },
      cancel(reason) {
        left = true;
        return reader.cancel(reason);
      },
    });
    return new Response(body, response);
  };
}

/** One message, until it is answered and saved. `patient`: somebody who, asked by the page, sends the same message again. */
async function say(client, submission) {
  for (;;) {
    let cut = false;
    let last;
    for await (const event of client.submit(told.app, submission, never)) {
      cut ||= last?.type !== "connection" && event.state === "retrying"; // a stream that had begun ended without an end
      last = event;
    }
    if (last.type === "end" && last.settled) return { run: last.run, cut };
    const again = last.type === "unanswered" || (last.type === "problem" && last.problem.retry === "same-submission");
    if (!told.patient || !again) throw new Error(JSON.stringify(last));
  }
}

async function chat(person, index) {
  const client = new GatewayClient({ base: told.base, fetch: watched(person) });
  let conversationId = null;
  for (let number = 0; !stopping; number += 1) {
    const long = (index + number) % told.longEvery === 0;
    const submission = { submissionId: `${person.subject}-${number}`, text: long ? "a long question" : `question ${number}`, conversationId };
    try {
      const { run, cut } = await say(client, submission);
      conversationId = run.conversation_id;
      write({ answered: submission.submissionId, subject: person.subject, text: submission.text, run, cut });
    } catch (error) {
      write({ failed: submission.submissionId, subject: person.subject, says: String(error.message) });
      return;
    }
    await reads(told.readingSeconds * (0.5 + Math.random()));
  }
}

await Promise.all(told.people.map(chat));
process.exit(0);
