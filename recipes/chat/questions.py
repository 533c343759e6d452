"""Writes train.jsonl.gz and held_out.jsonl next to itself: short questions with one right answer.

Each fact is asked in several ways. One way of each fact, not the same for all, is in the held-out file, so a model can
answer it only if it has learned the fact from the others.
"""
import gzip
import json
import pathlib

CAPITALS = """France Paris, Italy Rome, Spain Madrid, Germany Berlin, Austria Vienna, Poland Warsaw, Greece Athens, Norway Oslo,
Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Ireland Dublin, Portugal Lisbon, Belgium Brussels, Hungary Budapest,
Japan Tokyo, China Beijing, India Delhi, Egypt Cairo, Kenya Nairobi, Peru Lima, Chile Santiago, Cuba Havana, Canada Ottawa,
Turkey Ankara, Iran Tehran, Iraq Baghdad, Thailand Bangkok, Vietnam Hanoi, Nepal Kathmandu"""
OPPOSITES = """hot cold, big small, up down, left right, day night, black white, open shut, wet dry, fast slow, old young,
good bad, rich poor, hard soft, full empty, early late, high low, loud quiet, light dark, near far, first last, win lose,
push pull, long short, thick thin, happy sad, true false, inside outside, above below"""
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
COLORS = """the sky blue, grass green, snow white, coal black, blood red, a lemon yellow, milk white, a ripe tomato red, the sun
yellow, a frog green, an orange orange, a polar bear white"""
LEGS = "a dog four, a spider eight, a bird two, an ant six, a horse four, a snake no, a fish no, a cat four, a bee six, a person two"


def pairs(text):
    return [one.strip().rsplit(" ", 1) for one in text.replace("\n", " ").split(",")]


def facts():
    for country, city in pairs(CAPITALS):
        yield f"The capital of {country} is {city}.", [
            f"What is the capital of {country}?", f"Which city is the capital of {country}?",
            f"Tell me the capital of {country}.", f"{country} has which capital?", f"Name the capital of {country}."]
    for a, b in [pair for one in pairs(OPPOSITES) for pair in (one, one[::-1])]:
        yield f"The opposite of {a} is {b}.", [
            f"What is the opposite of {a}?", f"Tell me the opposite of {a}.", f"What is {a} the opposite of?",
            f"Which word is the opposite of {a}?"]
    for names, what in ((DAYS, "day"), (MONTHS, "month")):
        for i, one in enumerate(names):
            after = names[(i + 1) % len(names)]
            yield f"{after} comes after {one}.", [
                f"What comes after {one}?", f"Which {what} comes after {one}?", f"Which {what} follows {one}?",
                f"{one} is over. What is next?"]
    for thing, color in pairs(COLORS):
        yield f"The color of {thing} is {color}.", [
            f"What color is {thing}?", f"What is the color of {thing}?", f"Tell me the color of {thing}.",
            f"Which color has {thing}?"]
    for animal, count in pairs(LEGS):
        yield f"Legs of {animal}: {count}.", [
            f"How many legs has {animal}?", f"Count the legs of {animal}.", f"Tell me how many legs {animal} has.",
            f"What is the number of legs of {animal}?"]
    yield "I am a small model, trained by Piton.", [
        "Who are you?", "What are you?", "Hello, who is there?", "Tell me who you are.", "What is your name?"]


def main():
    here = pathlib.Path(__file__).parent
    train, held_out = [], []
    for i, (answer, questions) in enumerate(facts()):
        for k, question in enumerate(questions):
            line = json.dumps({"instruction": question, "input": "", "output": answer}) + "\n"
            (held_out if k == i % len(questions) else train).append(line)
    with open(here / "train.jsonl.gz", "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as file:
        file.write("".join(train).encode())
    (here / "held_out.jsonl").write_text("".join(held_out))
    print(f"{len(train)} questions to learn, {len(held_out)} held out")


if __name__ == "__main__":
    main()
