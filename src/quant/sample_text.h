/* sample_text: what is calibrated with where nobody names a text.
 *
 * Calibration only asks which columns of a layer's input are large, so some thousand tokens of every kind that models read tell most of it:
 * prose, conversation, programs, tables, mathematics, several languages. A text like those that the model will read tells more. Written for
 * this file. */
#pragma once

/* Passages, with an empty line between two of them. */
/* clang-format off */
static const char *const llm__sample_text[] = {
    "The river rises in the hills north of the town, where rain falls on two days out of three, and reaches the sea ninety kilometres "
    "further south. For centuries its water turned the wheels of mills; today a single dam holds enough of it to light thirty thousand "
    "homes. People who live along its banks still speak of the flood of 1953, when the water stood at the second floor of the town hall "
    "and the post was carried by boat. Since then the bed has been widened twice, and a gauge under the old bridge reports the level "
    "every ten minutes.",
    "Q: Why does bread rise?\nA: Yeast eats the sugar in the dough and gives off carbon dioxide. The gas is caught in small bubbles by "
    "the gluten, a net of proteins that kneading makes stronger. In the oven the bubbles grow, the starch sets, and the loaf keeps its "
    "shape.\nQ: And what happens if I forget the salt?\nA: It will rise faster, taste flat and stay pale. Salt slows the yeast down and "
    "tightens the gluten.",
    "#include <stdio.h>\n#include <stdlib.h>\n\n/* The greatest common divisor, by Euclid's algorithm. */\nstatic unsigned gcd(unsigned "
    "a, unsigned b) {\n    while (b != 0) {\n        unsigned rest = a % b;\n        a = b;\n        b = rest;\n    }\n    return a;\n"
    "}\n\nint main(int argc, char **argv) {\n    if (argc != 3) {\n        fprintf(stderr, \"usage: %s A B\\n\", argv[0]);\n        "
    "return 2;\n    }\n    printf(\"%u\\n\", gcd((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2])));\n    return 0;\n}",
    "长江发源于青藏高原,全长六千三百多公里,流经十一个省、自治区和直辖市,最后在上海附近注入东海"
    "。它的流域面积约占全国陆地面积的五分之一,养育着四亿多人口。每年春天,融化的雪水使河面变宽;"
    "到了夏季,暴雨常常带来洪水,所以人们很早就开始修筑堤坝。今天,这条大河不仅是重要的航道,也提"
    "供电力和灌溉用水。\n问:怎样才能学好一门外语?\n答:首先要每天坚持,哪怕只有二十分钟。其次要多"
    "听多说,不要害怕出错。最后,读自己感兴趣的书,遇到生词先猜意思,再查词典。",
    "Dear Ms. Alvarez,\n\nThank you for your letter of 14 March. We have looked into the delay of order 20417 and found that the parcel "
    "was sent to our branch in Leeds by mistake. A new one left our warehouse this morning and should reach you by Thursday; you need "
    "not return the first if it arrives after all. As an apology we have taken 15% off the price, which you will see on your next "
    "invoice (£48.20 instead of £56.70).\n\nYours sincerely,\nThomas Reed\nCustomer Service",
    "def moving_average(values, width):\n    \"\"\"Means of `width` neighbours; shorter than the input by width - 1.\"\"\"\n    if width "
    "< 1 or width > len(values):\n        raise ValueError(f\"width {width}: 1 to {len(values)} expected\")\n    total = "
    "sum(values[:width])\n    means = [total / width]\n    for i in range(width, len(values)):\n        total += values[i] - values[i - "
    "width]\n        means.append(total / width)\n    return means\n\n\nclass Inventory:\n    def __init__(self):\n        self.items = "
    "{}\n\n    def add(self, name, count=1, *, price=None):\n        entry = self.items.setdefault(name, {\"count\": 0, \"price\": "
    "price})\n        entry[\"count\"] += count\n        return entry\n\n    def total(self):\n        return sum(e[\"count\"] * "
    "(e[\"price\"] or 0.0) for e in self.items.values())",
    "Problem. A train leaves station A at 8:40 and travels at 72 km/h. A second train leaves station B, 150 km away, at 9:10 and travels "
    "towards it at 84 km/h. When do they meet?\nSolution. By 9:10 the first train has gone 72 * 0.5 = 36 km, so 150 - 36 = 114 km lie "
    "between them. They approach each other at 72 + 84 = 156 km/h. The time is 114 / 156 = 0.7308 h, about 43.8 minutes. They meet "
    "shortly before 9:54.\nLet f(x) = x^3 - 3x + 1. Then f'(x) = 3x^2 - 3 = 3(x - 1)(x + 1), so there is a maximum at x = -1 with f(-1) "
    "= 3 and a minimum at x = 1 with f(1) = -1. Since f(-2) = -1 < 0 and f(2) = 3 > 0, the equation f(x) = 0 has three real roots.",
    "{\"id\": 1042, \"status\": \"active\", \"tags\": [\"new\", \"blue\"], \"price\": 19.99, \"dimensions\": {\"width\": 40, \"height\": "
    "25.5, \"depth\": null}, \"available\": true}\n{\"id\": 1043, \"status\": \"sold out\", \"tags\": [], \"price\": 5, \"dimensions\": "
    "{\"width\": 12, \"height\": 12, \"depth\": 12}, \"available\": false}\n\n| city | inhabitants | area (km2) | founded |\n| --- | "
    "---: | ---: | --- |\n| Lisbon | 545,923 | 100.1 | 1200 BC |\n| Vienna | 1,982,097 | 414.9 | 15 BC |\n| Nairobi | 4,397,073 | 696.1 "
    "| 1899 |",
    "User: I slept badly again and feel tired all day. What can I do?\nAssistant: I am sorry to hear that. A few things help many "
    "people: go to bed and get up at the same time every day, even at weekends; keep the bedroom dark and cool; drink no coffee after "
    "noon; and put the phone away an hour before bed. If you lie awake for more than twenty minutes, get up and read something dull "
    "until you are sleepy. Should this go on for more than three or four weeks, please see a doctor, for tiredness may have causes that "
    "sleep alone does not mend.\nUser: Thanks. Could you put that into a short list?\nAssistant: Of course:\n1. The same hours every "
    "day\n2. A dark, cool room\n3. No coffee after noon\n4. No screen in the last hour\n5. After a month without improvement: a doctor",
    "El mercado abre a las siete de la mañana. Primero llegan los pescadores con cajas de sardinas y pulpos; después, los campesinos "
    "con tomates, cebollas y naranjas. A mediodía casi todo está vendido, y los vendedores se sientan a la sombra a tomar un café "
    "antes de volver a casa.\nLe petit musée du village conserve une horloge construite en 1788 par un forgeron qui ne savait ni lire "
    "ni écrire. Elle n'a jamais été réparée, et pourtant elle ne retarde que de deux minutes par semaine.\nWer durch den Wald geht, "
    "hört zuerst nur den Wind. Nach einer Weile unterscheidet man den Specht, das Knacken der Äste und, weit entfernt, die Säge. Im "
    "Herbst riecht es nach Pilzen und nassem Laub.\nПоезд опоздал на сорок минут, но никто не жалов"
    "ался: в вагоне было тепло, проводница принесла чай, а за окном медленно с"
    "ветлело.\n今日は朝から雨が降っていたので、図書館で本を読んで過ごしました。夕方になると"
    "空が晴れ、山の上に大きな虹が見えました。\nفي الصباح فتح التاجر دكانه ورتب الأقمش"
    "ة على الرفوف، ثم جلس ينتظر أول زبون.",
    "The experiment was repeated with 48 plants, half of which received no light for six hours a day. After three weeks the plants in "
    "the first group were 11.2 cm tall on average (standard deviation 1.4), those in the second 8.7 cm (1.9). The difference is "
    "significant (t = 5.19, p < 0.001). Leaves of the second group were darker, which agrees with the higher content of chlorophyll that "
    "Osborne and Li (2011) reported; the number of leaves did not differ. We conclude that shorter days slow growth without stopping it, "
    "and that the effect is reversible: within ten days of normal light the smaller plants had made up for half of the difference.",
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Opening hours</title>\n<style>body { font-family: "
    "sans-serif; margin: 2em auto; max-width: 40em } th { text-align: left }</style></head>\n<body>\n<h1>Opening hours</h1>\n<p>We are "
    "open <strong>Monday to Friday, 9:00 to 17:30</strong>. On public holidays the shop stays closed.</p>\n<ul><li><a "
    "href=\"/map?floor=2\">How to find us</a></li><li><a href=\"mailto:info@example.com\">Write to us</a></li></ul>\n</body>\n</html>\n\n"
    "$ git log --oneline -3\n4f2a9c1 Read the whole header before the first row\nb7d0e55 Tests: files without a newline at their end\n"
    "19ce3aa Sort names by their bytes\n$ grep -rn \"goto\" src | wc -l\n17\n$ curl -s http://localhost:8080/health\n"
    "{\"status\":\"ok\",\"uptime\":86213}",
    "Once upon a time an old clockmaker lived at the end of a narrow street. His shop was so small that two customers could not stand in "
    "it at once, and so full of clocks that nobody could hear himself speak at noon. One evening a girl came in with a broken watch. "
    "\"It stopped when my grandfather died,\" she said. \"Can you make it go again?\" The old man opened the case, looked at the wheels "
    "for a long time and smiled. \"Nothing is broken,\" he said. \"It only wants to be wound. Somebody did it every night, and then "
    "nobody did.\"\nShe wound it, and it began to tick. \"How much do I owe you?\" she asked. \"Come back in a year,\" said the "
    "clockmaker, \"and tell me whether you have forgotten a single night.\"",
    "SELECT c.name, COUNT(o.id) AS orders, SUM(o.total) AS revenue\nFROM customers AS c\nLEFT JOIN orders AS o ON o.customer_id = c.id "
    "AND o.created_at >= '2024-01-01'\nWHERE c.country IN ('DE', 'AT', 'CH')\nGROUP BY c.name\nHAVING COUNT(o.id) > 2\nORDER BY revenue "
    "DESC\nLIMIT 20;\n\nfunction debounce(fn, wait) {\n  let timer = null;\n  return (...args) => {\n    clearTimeout(timer);\n    timer "
    "= setTimeout(() => fn(...args), wait);\n  };\n}",
    "量子计算机利用叠加和纠缠来处理信息。普通的比特只能是零或一,而量子比特可以同时处于两种状"
    "态的叠加。不过,测量会使叠加消失,所以设计算法时要让错误的答案互相抵消,让正确的答案得到加强"
    "。目前最大的困难是噪声:周围环境的微小扰动就会破坏计算,因此需要用许多物理比特来保护一个逻"
    "辑比特。\n小王:周末你有空吗?我们一起去爬山吧。\n小李:好啊,几点出发?\n小王:早上七点半在地铁站"
    "门口见,记得带水和雨衣,天气预报说下午可能下雨。",
    "The government of the republic is divided into three branches. Parliament makes the laws and decides on taxes; the courts, whose "
    "judges are appointed for life, say what the laws mean; and the president, elected every five years, carries them out. No member of "
    "one branch may serve in another. The constitution of 1848 was amended fourteen times, most recently in 2009, when the voting age "
    "was lowered to sixteen. Critics say that small parties have little chance, since a seat in parliament takes at least four percent "
    "of all votes. Supporters answer that coalitions of many parties rarely last a full term, and point to the nine governments between "
    "1919 and 1933.",
};
/* clang-format on */
