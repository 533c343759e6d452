import regex, unicodedata
from tokenizers import pre_tokenizers, Regex, normalizers
# code points unassigned in ICU 72 (15.0): use regex module Age property? 
import subprocess
src=r'''
#include <unicode/uchar.h>
#include <cstdio>
int main(){for(int c=0;c<0x110000;c++) if(u_charType(c)==0) printf("%x\n",c);}
'''
open('/tmp/piton_cn.cpp','w').write(src)
subprocess.run('g++ /tmp/piton_cn.cpp -o /tmp/piton_cn -licuuc',shell=True,check=True)
cn=[int(x,16) for x in subprocess.run('/tmp/piton_cn',capture_output=True,text=True).stdout.split()]
def onig(cls,c):
    return onigs[cls].pre_tokenize_str(c)==[]
cats='Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf'.split()
onigs={k:pre_tokenizers.Split(Regex(r'\p{%s}'%k),'removed') for k in cats}
r={k:regex.compile(r'\p{%s}'%k) for k in cats}
out=[]
for c in cn:
    ch=chr(c)
    for k in cats:
        if r[k].match(ch):
            if onig(k,ch):
                if out and out[-1][1]==c-1 and out[-1][2]==k: out[-1][1]=c
                else: out.append([c,c,k])
            break
print(len(out)); 
for o in out: print('%x %x %s'%tuple(o))
