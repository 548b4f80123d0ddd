// The page in Firefox: opens it, reads a streamed answer, approves a call, and looks for clipped text at each width.
// Prints what it saw, as JSON.
//
//   node firefox.mjs EXECUTABLE URL CODE FAULTS

import { readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const [executablePath, url, code, faultsPath] = process.argv.slice(2);
const faults = `(${readFileSync(faultsPath, "utf-8")})()`; // the file is a function
const WIDTHS = [390, 768, 1440, 2560];
const LIMIT = { timeout: 120_000 };

const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true, protocolTimeout: LIMIT.timeout });
try {
  const page = await browser.newPage();
  const seen = { problems: [], faults: {} };
  page.on("pageerror", (error) => seen.problems.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") seen.problems.push(message.text()); });
  page.setDefaultTimeout(LIMIT.timeout);

  const send = async (text) => {
    await page.type("#message", text);
    await page.keyboard.press("Enter");
  };
  const sees = (text) => page.waitForFunction((wanted) => document.querySelector("session-view").innerText.includes(wanted), {}, text);
  const isIdle = () => page.waitForFunction(() => document.querySelector("message-composer [title^=Stop]").hidden);

  await page.setViewport({ width: 1440, height: 900 });
  await page.goto(`${url}/#code=${code}`);
  await page.waitForSelector("#message");
  await send("slow walk");
  await sees("Slowly: walk");
  seen.growing = await page.$eval(".answer", (answer) => answer.innerText);
  console.log(JSON.stringify({ isGrowing: true }));
  await sees("and the rest of the answer.");
  await isIdle();
  await send("markdown");
  await sees("It will rain in");
  await isIdle();
  seen.code = await page.$eval("session-view pre", (pre) => pre.textContent);
  await send("pay 5 Bob");
  await page.waitForSelector("tool-card.ask .go");
  for (const width of WIDTHS) {
    await page.setViewport({ width, height: 900 });
    for (const value of ["light", "dark"]) {
      await page.evaluate((theme) => { document.documentElement.dataset.theme = theme; }, value);
      seen.faults[`${width} ${value}`] = await page.evaluate(faults);
    }
    seen.faults[`${width} sideways`] = await page.evaluate(() => (document.documentElement.scrollWidth > innerWidth ? ["scrolls"] : []));
  }
  await page.setViewport({ width: 1440, height: 900 });
  await page.click("tool-card.ask .go");
  await sees("paid 5 to Bob");
  await isIdle();
  console.log(JSON.stringify(seen));
} finally {
  await browser.close();
}
